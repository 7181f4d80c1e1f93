// A line to the server: one connection at a time, and the calls whose messages it moves. Owned by the thread of its client.
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "calls.hpp"
#include "connection.hpp"

namespace slotline::detail {

using std::chrono::milliseconds;

class Line {
 public:
  Line(std::shared_ptr<zmq::context_t> context, std::string endpoint, Clock::duration timeout, std::optional<Keys> keys)
      : context_(std::move(context)),
        endpoint_(std::move(endpoint)),
        timeout_(timeout),
        keys_(std::move(keys)),
        owner_(std::this_thread::get_id()) {}

  Calls& calls() { return calls_; }
  RequestWriter& writer() { return writer_; }
  Clock::duration timeout() const { return timeout_; }

  // End what is in flight with Cancelled, and give the socket back.
  void close() {
    calls_.end_all(
        [](const std::string& model) { return Cancelled({Code::Cancelled, model + ": the client was closed", "", 0, ""}); });
    hello_ = nullptr;
    connection_.reset();
  }

  // Send a message without an answer, if it can be sent at once.
  void tell(Parts parts) {
    if (connection_ != nullptr) connection_->send(parts);
  }

  // Send one message that starts `calls`; when the socket is full, take replies until it is not, or the calls end.
  void put(const std::vector<CallPointer>& calls, Parts& parts) {
    const Call& last = *calls.back();
    while (!last.has_ended) {
      if (connection_->send(parts)) return;
      const auto left = last.deadline - Clock::now();
      if (left <= Clock::duration::zero()) {
        for (const CallPointer& call : calls) {
          calls_.expire_one(*call);
          calls_.leases().release(call->id);
        }
        return;
      }
      turn(left, true);
    }
  }

  // Take replies until `call` has ended or `until` has come; at its own deadline the call ends.
  void wait(Call& call, Clock::time_point until) {
    check_owner();
    until = std::min(until, call.deadline);
    while (!call.has_ended) {
      const auto left = until - Clock::now();
      // Also when the time is up: what has arrived counts.
      turn(left, false);
      if (left > Clock::duration::zero()) continue;
      if (call.deadline <= until) calls_.expire_one(call);
      return;
    }
  }

  // See that there is a connection and room for a call. Connecting takes no longer than `timeout`; throws ServerUnreachable or
  // Unauthorized.
  void make_ready(Clock::duration timeout) {
    check_owner();
    if (connection_ != nullptr && connection_->has_ended()) turn(Clock::duration::zero(), false);
    if (connection_ == nullptr || hello_ != nullptr) connect(std::min(timeout, timeout_));
    if (is_full()) {
      turn(Clock::duration::zero(), false);
      calls_.expire(Clock::now());
    }
  }

  bool is_full() const { return calls_.limits().max_in_flight > 0 && calls_.in_flight() >= calls_.limits().max_in_flight; }

  // Wait so long for messages, and take those that are there.
  void take_news(Clock::duration wait) { turn(wait, false); }

  void check_owner() const {
    if (std::this_thread::get_id() != owner_)
      throw std::logic_error("a Client belongs to the thread that made it: make one in each thread");
  }

 private:
  // Wait for something to happen, then take all replies that are there.
  void turn(Clock::duration wait, bool to_send) {
    if (connection_ == nullptr) return;
    const auto timeout = std::clamp(std::chrono::ceil<milliseconds>(wait), milliseconds{0}, milliseconds{std::chrono::hours{1}});
    connection_->poll(timeout, to_send);
    // Read before the last messages are taken: those that came before the end are not lost.
    std::string end = connection_->end();
    try {
      Parts parts;
      while (calls_.expects_messages() && connection_->receive(parts)) calls_.receive(parts);
    } catch (const BadReply& error) {
      end = error.what();
    }
    if (!connection_->refusal().empty()) {
      const std::string refusal = connection_->refusal();
      calls_.end_all([&](const std::string&) { return unauthorized(endpoint_, refusal); });
      drop();
    } else if (!end.empty()) {
      cut_short_ = connection_->was_cut_short() ? cut_short_ + 1 : 0;
      lose(end);
    }
  }

  // End the connection and what is in flight on it.
  void lose(const std::string& reason) {
    calls_.end_all([&](const std::string& model) {
      return ConnectionLost(model + ": " + endpoint_ + ": " + reason + " with the call in flight");
    });
    drop();
  }

  void drop() {
    if (hello_ != nullptr) calls_.expire_one(*hello_);
    hello_ = nullptr;
    if (connection_ != nullptr) connection_->abandon();
    connection_.reset();
  }

  // Wait for the server's answer to a Hello until the time is up. What is begun by then goes on: the next call finds it further, so
  // that a server is also reached by calls whose budgets are shorter than connecting takes.
  void connect(Clock::duration timeout) {
    const auto until = Clock::now() + timeout;
    std::string why;
    while (Clock::now() < until) {
      const CallPointer hello = hello_ != nullptr ? hello_ : say_hello();
      wait(*hello, until);
      if (!hello->has_ended) break;
      try {
        if (hello->error != nullptr) std::rethrow_exception(hello->error);
        hello_ = nullptr;
        writer_.use_limits(calls_.limits());
        return;
      } catch (const ConnectionLost& error) {
        why = error.what();
        if (cut_short_ >= kMaxCutShort) throw unauthorized(endpoint_, kCutShort);
        // Between two tries of a server that ends each connection.
        std::this_thread::sleep_until(std::min(until, Clock::now() + milliseconds{50}));
      } catch (const DeadlineExceeded&) {
        // What listens there does not answer: the next connection may reach a better one.
        drop();
      } catch (...) {
        drop();
        throw;
      }
    }
    const auto whole = std::chrono::duration_cast<milliseconds>(timeout).count();
    throw unreachable(endpoint_, std::to_string(whole) + " ms", why);
  }

  // Open a connection and greet the server; the answer is waited for as long as the client's own timeout.
  CallPointer say_hello() {
    connection_ = std::make_unique<Connection>(*context_, endpoint_, keys_.has_value() ? &*keys_ : nullptr);
    Parts hello = writer_.hello(calls_.next_id());
    hello_ = calls_.start("hello", Clock::now() + timeout_, Kind::Welcome);
    const CallPointer call = hello_;
    put({call}, hello);
    return call;
  }

  // So many handshakes in a row that the server breaks off are no accident: it cannot read what is encrypted for another key.
  static constexpr int kMaxCutShort = 3;

  std::shared_ptr<zmq::context_t> context_;
  std::string endpoint_;
  Clock::duration timeout_;
  std::optional<Keys> keys_;
  std::thread::id owner_;
  Calls calls_;
  RequestWriter writer_;
  std::unique_ptr<Connection> connection_;
  CallPointer hello_;  // of a connection whose server has not answered yet
  int cut_short_ = 0;
};

}  // namespace slotline::detail
