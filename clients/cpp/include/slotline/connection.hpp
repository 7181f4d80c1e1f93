// One connection: a DEALER socket and the monitor that tells when it ends. Owned by the thread of its client.
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "errors.hpp"
#include "limits.hpp"
#include "request_writer.hpp"

namespace slotline::detail {

// A socket that is used until its connection ends.
class Connection {
 public:
  // Throws ServerUnreachable when the endpoint is not one.
  Connection(zmq::context_t& context, const std::string& endpoint)
      : socket_(context, zmq::socket_type::dealer), monitor_(context, zmq::socket_type::pair) {
    socket_.set(zmq::sockopt::linger, kLingerMs);
    // Until the server is there; afterwards a connection that ends is never used again.
    socket_.set(zmq::sockopt::reconnect_ivl, 50);
    // Replies are bounded by the calls in flight. With a mark, one that arrived might not be seen before the connection's end.
    socket_.set(zmq::sockopt::rcvhwm, 0);
    if (endpoint.rfind("tcp:", 0) == 0) {
      // Long, because a server that was merely stopped for a while is not gone.
      socket_.set(zmq::sockopt::heartbeat_ivl, 1'000);
      socket_.set(zmq::sockopt::heartbeat_timeout, 10'000);
    }
    static std::atomic<std::uint64_t> monitors{0};
    const std::string events = "inproc://slotline-monitor-" + std::to_string(monitors++);
    constexpr int wanted = ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                           ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
    if (zmq_socket_monitor(socket_.handle(), events.c_str(), wanted) != 0) throw zmq::error_t();
    monitor_.set(zmq::sockopt::linger, 0);
    monitor_.connect(events);
    try {
      socket_.connect(endpoint);
    } catch (const zmq::error_t& error) {
      throw ServerUnreachable(endpoint + ": cannot be connected to (" + error.what() +
                              "); expected ipc://PATH or tcp://HOST:PORT");
    }
  }

  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  ~Connection() { zmq_socket_monitor(socket_.handle(), nullptr, 0); }

  // Drop what was not sent, when the connection is closed.
  void abandon() { socket_.set(zmq::sockopt::linger, 0); }

  // Send one message without waiting; false when the socket takes none now.
  bool send(Parts& parts) {
    for (std::size_t index = 0; index < parts.size(); ++index) {
      const auto more = index + 1 < parts.size() ? zmq::send_flags::sndmore : zmq::send_flags::none;
      // When the first part was taken the message has a place, and the others never wait.
      const auto flags = index == 0 ? more | zmq::send_flags::dontwait : more;
      while (!uninterrupted([&] { return socket_.send(parts[index], flags).has_value(); })) {
        if (index == 0) return false;
      }
    }
    return true;
  }

  // Take one message that has arrived; false when there is none.
  bool receive(Parts& parts) {
    parts.clear();
    zmq::message_t part;
    if (!uninterrupted([&] { return socket_.recv(part, zmq::recv_flags::dontwait).has_value(); })) return false;
    bool more = true;
    while (more) {
      more = part.more();
      // One above the limit is enough to see that there are too many.
      if (parts.size() <= kMaxPacked + 1) parts.push_back(std::move(part));
      if (more) {
        part.rebuild();
        while (!uninterrupted([&] { return socket_.recv(part).has_value(); })) {
        }
      }
    }
    return true;
  }

  // Wait until a message, the connection's end, or with to_send room for a message is there.
  void poll(std::chrono::milliseconds timeout, bool to_send) {
    const auto events = static_cast<short>(ZMQ_POLLIN | (to_send ? ZMQ_POLLOUT : 0));
    zmq::pollitem_t items[] = {{socket_.handle(), 0, events, 0}, {monitor_.handle(), 0, ZMQ_POLLIN, 0}};
    uninterrupted([&] { return zmq::poll(items, 2, timeout) > 0; });
    if ((items[1].revents & ZMQ_POLLIN) != 0) read_end();
  }

  // Return whether the connection has ended, without waiting.
  bool has_ended() {
    if ((monitor_.get(zmq::sockopt::events) & ZMQ_POLLIN) != 0) read_end();
    return !end_.empty();
  }

  // Return how it has ended, "" as long as nobody has seen that.
  const std::string& end() const { return end_; }

 private:
  // What was just sent may still leave when a client closes.
  static constexpr int kLingerMs = 200;

  void read_end() {
    zmq::message_t event;
    zmq::message_t address;
    if (!monitor_.recv(event, zmq::recv_flags::dontwait) || !monitor_.recv(address)) return;
    std::uint16_t number = 0;
    if (event.size() >= sizeof number) std::memcpy(&number, event.data(), sizeof number);
    end_ = number == ZMQ_EVENT_DISCONNECTED ? "the server closed the connection" : "what listens there is no Slotline server";
  }

  // Return what an operation returns; a signal that comes in between counts as false, which callers take as "not now".
  template <class Operation>
  static bool uninterrupted(Operation operation) {
    try {
      return operation();
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) throw;
      return false;
    }
  }

  zmq::socket_t socket_;
  zmq::socket_t monitor_;
  std::string end_;
};

}  // namespace slotline::detail
