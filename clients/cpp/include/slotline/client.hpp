// The blocking client: tensors in, tensors out, over one DEALER socket. Many calls may be in flight.
//
// A Client belongs to the thread that made it, which also takes replies in: they are handled whenever a call is waited for or
// made. Nothing is sent twice: when the connection or the server's life ends, every call in flight ends with ConnectionLost, and
// the caller decides; the next call connects again, by a new socket.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "line.hpp"

namespace slotline {

// One call in flight; cheap to copy. Its Client must live until it has ended, and ends it when it goes.
class Pending {
 public:
  // Return whether the call has ended, after taking what has arrived.
  bool done() const {
    if (!call_->has_ended) line_->wait(*call_, detail::Clock::now());
    return call_->has_ended;
  }

  // Wait until the call has ended, which it does at its deadline, or so long; return whether it has.
  bool wait(std::chrono::microseconds timeout) const {
    if (!call_->has_ended) line_->wait(*call_, detail::Clock::now() + timeout);
    return call_->has_ended;
  }

  // Return the result, waiting for it; throws what became of the call instead.
  const Result& result() const {
    if (!call_->has_ended) line_->wait(*call_, call_->deadline);
    if (call_->error != nullptr) std::rethrow_exception(call_->error);
    return *call_->result;
  }

 private:
  friend class Client;
  Pending(detail::Line* line, detail::CallPointer call) : line_(line), call_(std::move(call)) {}

  detail::Line* line_;
  detail::CallPointer call_;
};

// How a Client connects.
struct Settings {
  // How long connecting, and a call that names no budget, may take.
  std::chrono::microseconds timeout = std::chrono::seconds{5};
  // False = the first call connects, so that a client can be made before there is a server.
  bool connect = true;
  // For a server with CURVE; read_keys() takes them from files.
  std::optional<Keys> keys;
  // ZeroMQ's, when the process has its own.
  std::shared_ptr<zmq::context_t> context;
};

class Client {
 public:
  using Inputs = std::vector<Input>;

  // Connect, if the settings say so. Throws ServerUnreachable when nobody answers in time, Unauthorized when the server does not
  // take this client's key or is not the one whose key was given, BadKeys when a key is wrong, RequestRefused when the server does
  // not take this client.
  explicit Client(std::string endpoint, Settings settings = Settings()) {
    if (settings.timeout <= std::chrono::microseconds::zero()) throw std::invalid_argument("timeout: expected more than 0");
    if (settings.keys.has_value()) detail::check(*settings.keys);
    if (settings.context == nullptr) settings.context = std::make_shared<zmq::context_t>(1);
    line_ = std::make_unique<detail::Line>(std::move(settings.context), std::move(endpoint), settings.timeout,
                                           std::move(settings.keys));
    if (settings.connect) line_->make_ready(settings.timeout);
  }

  // Connect with these settings but for the timeout.
  Client(std::string endpoint, std::chrono::microseconds timeout) : Client(std::move(endpoint), with(timeout)) {}

  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  ~Client() { line_->close(); }

  // Return the server's present life: another number after a reconnect means that it was restarted.
  std::uint64_t epoch() const { return line_->calls().epoch(); }

  // Send one request and return its result. Throws RequestRefused (Busy, Unauthorized), RequestFailed, DeadlineExceeded,
  // ConnectionLost, BadReply, ServerUnreachable, Cancelled or Superseded.
  Result infer(const std::string& model, const Inputs& inputs, const Options& options = {}) {
    const Pending pending = submit(model, inputs, options);
    pending.result();
    return std::move(*pending.call_->result);
  }

  // Send one request and return what `read` makes of its Result, or `on_failure` whatever goes wrong: the server, the network,
  // the request, or `read`. Returns within the budget, connecting included.
  template <class Value, class Read>
  Value infer_or(Value on_failure, const std::string& model, const Inputs& inputs, Read read, const Options& options = {}) {
    try {
      return read(infer(model, inputs, options));
    } catch (const std::exception&) {
      return on_failure;
    }
  }

  // Send one request and return the call, to be waited for later; throws what is found out before it is sent.
  Pending submit(const std::string& model, const Inputs& inputs, const Options& options = {}) {
    Started started = start(model, inputs, options, false);
    line_->put({started.call}, started.written.parts);
    return {line_.get(), std::move(started.call)};
  }

  // End a call with Cancelled and tell the server; false when it had ended before.
  bool cancel(const Pending& pending) {
    line_->check_owner();
    if (!line_->calls().cancel(*pending.call_)) return false;
    // When the socket takes nothing now, the request's own budget ends it.
    line_->tell(line_->writer().cancel(pending.call_->id));
    return true;
  }

  // Return the server's state and how much it has to do.
  Health health() { return ask(HealthScope::Live, ""); }

  // Return whether the server, or one model, takes requests.
  bool ready(const std::string& model = "") { return ask(model.empty() ? HealthScope::Ready : HealthScope::ModelReady, model).ok; }

  // Send many requests, small ones packed up to 64 to a message, wait for all, and return the ended calls in order: result() of
  // each returns or throws. At most 256 of them, or 16 MiB, are in flight at once, so that a lane's default backlog takes them.
  std::vector<Pending> infer_many(const std::string& model, const std::vector<Inputs>& requests, const Options& options = {}) {
    Many many{*this, {}, {}, {}, {}, 0, 0};
    many.calls.reserve(requests.size());
    for (const Inputs& inputs : requests) many.add(model, inputs, options);
    many.finish();
    return std::move(many.calls);
  }

 private:
  struct Started {
    detail::CallPointer call;
    detail::Written written;
  };

  // The requests of one infer_many.
  struct Many {
    Client& client;
    std::vector<Pending> calls;
    std::vector<detail::CallPointer> pack;
    detail::Parts headers;
    std::deque<std::pair<detail::CallPointer, std::size_t>> in_flight;
    std::size_t pack_bytes;
    std::size_t bytes_in_flight;

    void add(const std::string& model, const Inputs& inputs, const Options& options) {
      const auto limit = client.line_->calls().limits().max_in_flight;
      const std::size_t most = limit > 0 ? std::min<std::size_t>(detail::kManyInFlight, limit) : detail::kManyInFlight;
      if (in_flight.size() >= most || bytes_in_flight >= detail::kManyBytes) make_room();
      Started started;
      try {
        started = client.start(model, inputs, options, true);
      } catch (const Error&) {
        auto failed = std::make_shared<detail::Call>();
        failed->error = std::current_exception();
        failed->has_ended = true;
        calls.push_back(Pending(client.line_.get(), std::move(failed)));
        return;
      }
      calls.push_back(Pending(client.line_.get(), started.call));
      in_flight.emplace_back(started.call, started.written.bytes);
      bytes_in_flight += started.written.bytes;
      if (started.written.parts.size() > 1) {
        client.line_->put({started.call}, started.written.parts);
      } else {
        add_to_pack(std::move(started));
      }
    }

    void add_to_pack(Started started) {
      const auto max_bytes = client.line_->calls().limits().max_payload;
      if (pack.size() >= detail::kMaxPacked || (max_bytes > 0 && pack_bytes + started.written.bytes > max_bytes)) flush();
      pack.push_back(std::move(started.call));
      headers.push_back(std::move(started.written.parts[0]));
      pack_bytes += started.written.bytes;
    }

    // Wait for the oldest requests, as many as a pack takes, so that the next packs are full.
    void make_room() {
      flush();
      for (std::size_t count = std::min(detail::kMaxPacked, in_flight.size()); count > 0; --count) {
        const auto [call, bytes] = std::move(in_flight.front());
        in_flight.pop_front();
        bytes_in_flight -= bytes;
        client.line_->wait(*call, call->deadline);
      }
    }

    void finish() {
      flush();
      for (const Pending& call : calls) {
        if (!call.call_->has_ended) client.line_->wait(*call.call_, call.call_->deadline);
      }
    }

    void flush() {
      auto sending = std::exchange(pack, {});
      auto parts = std::exchange(headers, {});
      pack_bytes = 0;
      // Not what a lost connection has ended meanwhile: its caller was told that it may have to be sent again.
      std::size_t kept = 0;
      for (std::size_t index = 0; index < sending.size(); ++index) {
        if (sending[index]->has_ended) continue;
        std::swap(sending[kept], sending[index]);
        std::swap(parts[kept++], parts[index]);
      }
      sending.resize(kept);
      parts.resize(kept);
      if (kept > 0) client.line_->put(sending, parts);
    }
  };

  Started start(const std::string& model, const Inputs& inputs, const Options& options, bool may_pack) {
    // Before connecting, which counts.
    const auto now = detail::Clock::now();
    const auto lasts = options.budget_us > 0 ? limited(options.budget_us) : line_->timeout();
    line_->make_ready(lasts);
    detail::Calls& calls = line_->calls();
    if (line_->is_full()) {
      const std::string limit = std::to_string(calls.limits().max_in_flight);
      throw Busy(
          {Code::Busy, "max_in_flight: expected at most " + limit + " calls at once, all are in use", "max_in_flight", 0, ""});
    }
    Options complete = options;
    complete.budget_us = budget_us(options);
    Started started;
    started.written = line_->writer().infer(calls.next_id(), model, inputs, complete, may_pack);
    started.call = calls.start(model, now + lasts, Kind::InferReply);
    calls.hold(started.call->id, inputs, options);
    return started;
  }

  // Return the budget to be sent. One that is named above the server's limit is refused; without one the lane's default (0) holds,
  // unless this client would be gone before.
  std::uint64_t budget_us(const Options& options) const {
    const detail::ServerLimits& limits = line_->calls().limits();
    if (options.budget_us > 0) {
      if (limits.max_budget_us > 0 && options.budget_us > limits.max_budget_us) {
        const std::string message = "budget_us: expected at most " + std::to_string(limits.max_budget_us) + ", got ";
        throw RequestRefused({Code::BadParam, message + std::to_string(options.budget_us), "budget_us", 0, ""});
      }
      return options.budget_us;
    }
    const auto timeout_us =
        static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(line_->timeout()).count());
    return timeout_us >= limits.default_budget_us ? 0 : timeout_us;
  }

  Health ask(HealthScope scope, const std::string& model) {
    const auto until = detail::Clock::now() + line_->timeout();
    line_->make_ready(line_->timeout());
    detail::Parts question = line_->writer().health(line_->calls().next_id(), scope, model);
    const detail::CallPointer call = line_->calls().start("health", until, Kind::HealthReply);
    line_->put({call}, question);
    if (!call->has_ended) line_->wait(*call, until);
    if (call->error != nullptr) std::rethrow_exception(call->error);
    return call->health;
  }

  static Settings with(std::chrono::microseconds timeout) {
    Settings settings;
    settings.timeout = timeout;
    return settings;
  }

  // Return a budget as a duration that the clock can add.
  static detail::Clock::duration limited(std::uint64_t budget_us) {
    constexpr std::uint64_t kYearUs = 31'536'000'000'000;
    return std::chrono::microseconds{static_cast<std::int64_t>(std::min(budget_us, kYearUs))};
  }

  friend class Lease;
  std::unique_ptr<detail::Line> line_;
};

}  // namespace slotline
