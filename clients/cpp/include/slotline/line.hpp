// A line to the server: one connection at a time, and the calls whose messages it moves. Owned by the thread of its client.
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
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
  Line(std::shared_ptr<zmq::context_t> context, std::string endpoint, Clock::duration timeout)
      : context_(std::move(context)), endpoint_(std::move(endpoint)), timeout_(timeout), owner_(std::this_thread::get_id()) {}

  Calls& calls() { return calls_; }
  RequestWriter& writer() { return writer_; }
  Clock::duration timeout() const { return timeout_; }

  // End what is in flight with Cancelled, and give the socket back.
  void close() {
    calls_.end_all(
        [](const std::string& model) { return Cancelled({Code::Cancelled, model + ": the client was closed", "", 0, ""}); });
    connection_.reset();
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

  // See that there is a connection and room for a call. Connecting takes no longer than `timeout`; throws ServerUnreachable.
  void make_ready(Clock::duration timeout) {
    check_owner();
    if (connection_ != nullptr && connection_->has_ended()) turn(Clock::duration::zero(), false);
    if (connection_ == nullptr) connect(std::min(timeout, timeout_));
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
    if (!end.empty()) lose(end);
  }

  // End the connection and what is in flight on it.
  void lose(const std::string& reason) {
    drop();
    calls_.end_all([&](const std::string& model) {
      return ConnectionLost(model + ": " + endpoint_ + ": " + reason + " with the call in flight");
    });
  }

  void drop() {
    if (connection_ != nullptr) connection_->abandon();
    connection_.reset();
  }

  // Open a connection and say Hello, until the server answers or the time is up.
  void connect(Clock::duration timeout) {
    const auto until = Clock::now() + timeout;
    std::string why;
    while (Clock::now() < until) {
      connection_ = std::make_unique<Connection>(*context_, endpoint_);
      Parts hello = writer_.hello(calls_.next_id());
      const CallPointer call = calls_.start("hello", until, Kind::Welcome);
      put({call}, hello);
      wait(*call, until);
      try {
        if (call->error != nullptr) std::rethrow_exception(call->error);
        writer_.use_limits(calls_.limits());
        return;
      } catch (const ConnectionLost& error) {
        why = std::string(", last: ") + error.what();
        // Between two tries of a server that ends each connection.
        std::this_thread::sleep_until(std::min(until, Clock::now() + milliseconds{50}));
      } catch (const DeadlineExceeded&) {
        break;
      } catch (...) {
        drop();
        throw;
      }
    }
    drop();
    throw ServerUnreachable(endpoint_ + ": no server answered within " +
                            std::to_string(std::chrono::duration_cast<milliseconds>(timeout).count()) + " ms" + why);
  }

  std::shared_ptr<zmq::context_t> context_;
  std::string endpoint_;
  Clock::duration timeout_;
  std::thread::id owner_;
  Calls calls_;
  RequestWriter writer_;
  std::unique_ptr<Connection> connection_;
};

}  // namespace slotline::detail
