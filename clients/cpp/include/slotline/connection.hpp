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
#include "keys.hpp"
#include "limits.hpp"
#include "request_writer.hpp"

namespace slotline::detail {

// Return what would have been right instead of an endpoint that is none.
inline std::string endpoint_cure(const std::string& endpoint) {
  const std::string form = "expected ipc://PATH with at most 107 bytes or tcp://HOST:PORT";
  if (endpoint.empty() || endpoint.find("://") != std::string::npos) return form;
  const std::size_t colon = endpoint.rfind(':');
  const bool is_tcp = colon != std::string::npos && colon > 0 && colon + 1 < endpoint.size() &&
                      endpoint.find('/') == std::string::npos &&
                      endpoint.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  return form + "; did you mean " + (is_tcp ? "tcp://" : "ipc://") + endpoint + "?";
}

// What a wrong key of the server looks like, and little else.
inline constexpr const char* kCutShort =
    "the server broke off the handshake: see whether the server key is its public key, and whether it uses keys at all";

// A socket that is used until its connection ends.
class Connection {
 public:
  // `keys`: for a server with CURVE, else nullptr. Throws ServerUnreachable when the endpoint is not one.
  Connection(zmq::context_t& context, const std::string& endpoint, const Keys* keys)
      : socket_(context, zmq::socket_type::dealer), monitor_(context, zmq::socket_type::pair), has_keys_(keys != nullptr) {
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
    if (keys != nullptr) {
      socket_.set(zmq::sockopt::curve_serverkey, keys->server);
      socket_.set(zmq::sockopt::curve_publickey, keys->public_key);
      socket_.set(zmq::sockopt::curve_secretkey, keys->secret_key);
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
      zmq_socket_monitor(socket_.handle(), nullptr, 0);
      throw ServerUnreachable(endpoint + ": cannot be connected to (" + error.what() + "); " + endpoint_cure(endpoint));
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

  // Return why the server does not take this client and will not the next time, "" if it has not said so.
  const std::string& refusal() const { return refusal_; }

  // Return whether the server broke off a handshake with keys without a word.
  bool was_cut_short() const { return was_cut_short_; }

 private:
  // What was just sent may still leave when a client closes.
  static constexpr int kLingerMs = 200;

  void read_end() {
    zmq::message_t event;
    zmq::message_t address;
    if (!monitor_.recv(event, zmq::recv_flags::dontwait) || !monitor_.recv(address)) return;
    std::uint16_t number = 0;
    std::uint32_t value = 0;
    if (event.size() < sizeof number + sizeof value) return;
    std::memcpy(&number, event.data(), sizeof number);
    std::memcpy(&value, static_cast<const char*>(event.data()) + sizeof number, sizeof value);
    tell_end(number, value);
  }

  void tell_end(std::uint16_t event, std::uint32_t value) {
    const std::string no_server = "what listens there is no Slotline server";
    if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) {
      refusal_ = "the server does not have this client's public key on its list: have it put into its curve.clients directory";
    } else if (event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL && value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH) {
      refusal_ = has_keys_ ? "the server there uses no keys: give none, or name another endpoint"
                           : "the server takes clients with keys only: give the client keys";
    } else if (event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL) {
      // What a wrong key of the server looks like, or another mechanism when the server hangs up before its greeting is read. But
      // so does a server that ends just then.
      end_ = has_keys_ ? kCutShort : no_server + ", or one that takes clients with keys only";
      was_cut_short_ = has_keys_;
    } else {
      end_ = event == ZMQ_EVENT_DISCONNECTED ? "the server closed the connection" : no_server;
    }
    if (!refusal_.empty()) end_ = refusal_;
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
  const bool has_keys_;
  std::string end_;
  std::string refusal_;
  bool was_cut_short_ = false;
};

}  // namespace slotline::detail
