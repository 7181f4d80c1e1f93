// The calls of one client: which are in flight, and how each ended. Pure: no socket; times come in.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "reply_reader.hpp"
#include "request_writer.hpp"

namespace slotline::detail {

using Clock = std::chrono::steady_clock;

// One call. `error`, or `result` of an inference, or `health` is set when it has ended.
struct Call {
  std::uint64_t id = 0;
  std::string model;
  Clock::time_point deadline;
  Kind answer = Kind::InferReply;  // the kind of reply that is a result
  bool has_ended = false;
  std::exception_ptr error;
  std::optional<Result> result;
  Health health;

  template <class Exception>
  void fail(Exception exception) {
    error = std::make_exception_ptr(std::move(exception));
    has_ended = true;
  }
};

using CallPointer = std::shared_ptr<Call>;

class Calls {
 public:
  std::size_t in_flight() const { return calls_.size(); }
  std::uint64_t next_id() const { return last_id_ + 1; }
  std::uint64_t epoch() const { return epoch_; }
  const ServerLimits& limits() const { return limits_; }
  LeaseBook& leases() { return leases_; }
  // (path, token) by which this connection may ask for leases, "" where the server lends none.
  const std::pair<std::string, std::string>& lease_access() const { return lease_access_; }
  // Return whether something is to come: an answer, or news that frames of a lease are free.
  bool expects_messages() const { return !calls_.empty() || leases_.is_waiting(); }

  // Take note that a request uses the frames that it names.
  void hold(std::uint64_t id, const std::vector<Input>& inputs, const Options& options) {
    for (const Input& input : inputs) {
      if (input.leased != nullptr) leases_.hold(id, input.leased);
    }
    for (const auto& [name, place] : options.output_frames) leases_.hold(id, place);
  }

  // Start a call with next_id().
  CallPointer start(const std::string& model, Clock::time_point deadline, Kind answer) {
    auto call = std::make_shared<Call>();
    call->id = ++last_id_;
    call->model = model;
    call->deadline = deadline;
    call->answer = answer;
    calls_.emplace(call->id, call);
    return call;
  }

  // End the calls that one message answers; throws BadReply when it is not known which call that was.
  void receive(Parts& parts) {
    std::vector<Frame> frames;
    for (zmq::message_t& part : parts) frames.emplace_back(std::move(part));
    const Message* message = verified(frames[0].bytes());
    if (message == nullptr) return end_unreadable(frames[0].bytes());
    if ((message->route()->flags() & static_cast<std::uint16_t>(Flag::Packed)) == 0) return take(*message, std::move(frames));
    for (Frame& frame : frames) {
      message = verified(frame.bytes());
      if (message == nullptr) {
        end_unreadable(frame.bytes());
        continue;
      }
      std::vector<Frame> alone;
      alone.push_back(std::move(frame));
      take(*message, std::move(alone));
    }
  }

  // End every call whose deadline has passed.
  void expire(Clock::time_point now) {
    std::vector<CallPointer> late;
    for (const auto& [id, call] : calls_) {
      if (call->deadline <= now) late.push_back(call);
    }
    for (const CallPointer& call : late) expire_one(*call);
  }

  // End a call whose deadline has passed; its reply, should it still come, is ignored.
  void expire_one(Call& call) {
    if (calls_.erase(call.id) > 0) {
      call.fail(DeadlineExceeded({Code::DeadlineExceeded, call.model + ": no answer within the call's budget", "", 0, ""}));
    }
  }

  // End a call that its caller cancels; false when it had ended by itself.
  bool cancel(Call& call) {
    if (calls_.erase(call.id) == 0) return false;
    call.fail(Cancelled({Code::Cancelled, call.model + ": cancelled by its caller", "", 0, ""}));
    return true;
  }

  // End every call in flight with what `outcome` makes of its model's name.
  template <class Outcome>
  void end_all(Outcome outcome) {
    leases_.lose();
    auto calls = std::exchange(calls_, {});
    for (const auto& [id, call] : calls) call->fail(outcome(call->model));
  }

 private:
  CallPointer extract(std::uint64_t id) {
    const auto found = calls_.find(id);
    if (found == calls_.end()) return nullptr;
    CallPointer call = std::move(found->second);
    calls_.erase(found);
    return call;
  }

  void end_unreadable(Bytes header) {
    const auto id = id_if_readable(header);
    const CallPointer call = id.has_value() ? extract(*id) : nullptr;
    if (call == nullptr) throw BadReply("the server sent what is no valid message");
    call->fail(BadReply(call->model + ": not a valid reply"));
  }

  // Release the frames of a request when a message says so: by its flag, or by a code 1xx, with which they were never taken.
  void release(const Message& message) {
    if (!leases_.is_waiting()) return;
    const Route& route = *message.route();
    const Failure* failure = route.kind() == Kind::Error ? message.body_as_Failure() : nullptr;
    const bool is_refusal = failure != nullptr && failure->code() < Code::Busy;
    const bool is_told = (route.flags() & static_cast<std::uint16_t>(Flag::Released)) != 0;
    if (is_told || is_refusal) leases_.release(route.request_id());
  }

  // End the call that one verified header answers; a late reply has none.
  void take(const Message& message, std::vector<Frame> frames) {
    release(message);
    if (message.route()->kind() == Kind::Release) return;
    const CallPointer call = extract(message.route()->request_id());
    if (call == nullptr) return;
    try {
      end(*call, message, std::move(frames));
    } catch (const BadReply& error) {
      call->fail(BadReply(call->model + ": " + error.what()));
    }
    call->has_ended = true;
  }

  void end(Call& call, const Message& message, std::vector<Frame> frames) {
    const Route& route = *message.route();
    if (route.payload_frames() != frames.size() - 1)
      throw BadReply("not a valid reply: payload_frames is not the number of frames");
    if (route.kind() == Kind::Error && message.body_as_Failure() != nullptr) {
      call.error = error_of(reason(*message.body_as_Failure()));
    } else if (route.kind() != call.answer) {
      throw BadReply(std::string("not a valid reply: a message of kind ") + std::to_string(static_cast<int>(route.kind())));
    } else if (call.answer == Kind::Welcome) {
      welcome(message.body_as_WelcomeBody());
    } else if (call.answer == Kind::HealthReply) {
      call.health = health(message.body_as_HealthOut());
    } else {
      call.result = ReplyReader::read(std::move(frames), leases_);
    }
  }

  static std::string text(const flatbuffers::String* text) { return text == nullptr ? std::string() : text->str(); }

  static Health health(const HealthOut* health) {
    if (health == nullptr) throw BadReply("not a valid reply: no HealthOut");
    return {health->ok(), text(health->state()), health->queued(), health->in_flight()};
  }

  static Reason reason(const Failure& failure) {
    return {known_code(static_cast<std::uint16_t>(failure.code())), text(failure.message()), text(failure.field()),
            failure.retry_after_us(), text(failure.stage())};
  }

  void welcome(const WelcomeBody* welcome) {
    if (welcome == nullptr) throw BadReply("not a valid reply: no WelcomeBody");
    epoch_ = welcome->epoch();
    lease_access_ = {text_of(welcome->lease_socket()), text_of(welcome->lease_token())};
    limits_ = {};
    if (const Limits* limits = welcome->limits()) {
      limits_ = {limits->max_header(), limits->max_payload(), limits->max_frames(), limits->max_in_flight(),
                 limits->default_budget_us(), limits->max_budget_us()};
    }
  }

  static std::string text_of(const flatbuffers::String* text) { return text == nullptr ? std::string() : text->str(); }

  std::uint64_t last_id_ = 0;
  std::uint64_t epoch_ = 0;
  ServerLimits limits_;
  LeaseBook leases_;
  std::pair<std::string, std::string> lease_access_;
  std::unordered_map<std::uint64_t, CallPointer> calls_;
};

}  // namespace slotline::detail
