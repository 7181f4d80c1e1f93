// Leases: shared memory of a server on this machine, for inputs that are written in place and outputs that come the same way.
// Include this beside slotline.hpp; Linux only.
//
//   slotline::Lease lease(client);
//   slotline::LeaseFrame frame = lease.frame();
//   fill(frame.data(), frame.size());
//   slotline::Result result = client.infer("frames", {frame.input("image", slotline::DType::UINT8, {2048, 3072})});
#pragma once

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "client.hpp"
#include "lease_state.hpp"

namespace slotline {

// One frame of a lease, yours until it goes; movable. Gone while the server uses it, it is free for others afterwards.
class LeaseFrame {
 public:
  LeaseFrame(LeaseFrame&&) = default;
  LeaseFrame& operator=(LeaseFrame&& other) noexcept {
    std::swap(slot_, other.slot_);
    return *this;
  }

  ~LeaseFrame() {
    if (slot_ != nullptr) slot_->close();
  }

  // Return whether a request that names it has not been heard to be done with it: nothing may be written then.
  bool is_busy() const { return slot_->uses > 0; }

  // Return the memory to write in; throws std::logic_error while the frame is busy, ConnectionLost when its lease has ended. Keep
  // the pointer no longer than until the frame is busy.
  std::uint8_t* data() const {
    slot_->check(false);
    if (is_busy()) throw std::logic_error("the frame is busy: the server still uses it; take another, or wait for the answer");
    return slot_->region->at(slot_->frame);
  }

  std::size_t size() const { return static_cast<std::size_t>(slot_->region->frame_bytes); }

  // Return the beginning of the frame as an input; throws std::invalid_argument when it does not fit, or has no fixed size.
  Input input(std::string name, DType dtype, Shape shape) const {
    std::uint64_t bytes = item_bytes(dtype);
    if (bytes == 0) throw std::invalid_argument(name + ": expected a datatype of fixed size in a frame");
    for (const std::int64_t dim : shape) {
      if (dim < 0 || (dim > 0 && bytes > size() / static_cast<std::uint64_t>(dim)))
        throw std::invalid_argument(name + ": expected at most " + std::to_string(size()) + " bytes");
      bytes *= static_cast<std::uint64_t>(dim);
    }
    const Bytes view(slot_->region->at(slot_->frame), static_cast<std::size_t>(bytes));
    return {std::move(name), dtype, std::move(shape), view, slot_->region, "", slot_};
  }

  // Return the frame as the place of an output, for Options::output_frames. The result's output is then a view of it.
  FramePlace place() const { return slot_; }

 private:
  friend class Lease;
  explicit LeaseFrame(FramePlace slot) : slot_(std::move(slot)) {}

  FramePlace slot_;
};

// A lease of a client's present connection; the Client must outlive it. It goes back when it, its frames and the results that look
// at them are gone.
class Lease {
 public:
  // Ask for at least so many frames of so many bytes, 0 = whatever the server's config says. Throws Busy when all are lent,
  // RequestRefused when the server lends none, or none so large, ServerUnreachable on another machine or as another user.
  explicit Lease(Client& client, std::uint64_t frame_bytes = 0, std::uint32_t frames = 0) : line_(client.line_.get()) {
    line_->make_ready(line_->timeout());
    const auto& [path, token] = line_->calls().lease_access();
    if (path.empty())
      throw RequestRefused({Code::NotSupported, "lease: this server lends none: its config would say so by leases.count", "lease", 0, ""});
    region_ = take(path, ask(1, token, frame_bytes, frames));
    line_->calls().leases().add(region_);
  }

  std::uint32_t frames() const { return region_->frames; }
  std::size_t frame_bytes() const { return static_cast<std::size_t>(region_->frame_bytes); }

  // Return a frame that nobody uses, waiting until the server has done with one. Throws DeadlineExceeded when it has not in time,
  // std::logic_error when all are open in this program, ConnectionLost when the lease has ended.
  LeaseFrame frame() { return frame(line_->timeout()); }

  LeaseFrame frame(detail::Clock::duration timeout) {
    line_->check_owner();
    const auto until = detail::Clock::now() + timeout;
    while (true) {
      region_->check();
      if (!region_->free.empty()) break;
      if (region_->closing == 0) throw std::logic_error("all frames of the lease are open in this program: close one");
      const auto left = until - detail::Clock::now();
      if (left <= detail::Clock::duration::zero()) {
        throw DeadlineExceeded({Code::DeadlineExceeded, "no frame of the lease was free in time: the server uses them", "", 0, ""});
      }
      line_->take_news(left);
    }
    auto slot = std::make_shared<detail::LeaseSlot>();
    slot->region = region_;
    slot->frame = region_->free.front();
    region_->free.pop_front();
    return LeaseFrame(std::move(slot));
  }

 private:
  // The packets of docs/protocol.md, section 15.
  static constexpr std::size_t kAskBytes = 56;
  static constexpr std::size_t kAnswerBytes = 48;
  static constexpr std::size_t kMaxText = 512;
  using Ask = std::array<std::uint8_t, kAskBytes>;

  static Ask ask(std::uint16_t operation, const std::string& token, std::uint64_t frame_bytes, std::uint32_t frames) {
    Ask packet{'S', 'L', 'L', '1'};
    std::memcpy(packet.data() + 4, &operation, sizeof operation);
    std::memcpy(packet.data() + 8, token.data(), std::min<std::size_t>(token.size(), 32));
    std::memcpy(packet.data() + 40, &frame_bytes, sizeof frame_bytes);
    std::memcpy(packet.data() + 48, &frames, sizeof frames);
    return packet;
  }

  // A descriptor that is closed with its owner.
  struct Descriptor {
    int number = -1;
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    explicit Descriptor(int made) : number(made) {}
    ~Descriptor() {
      if (number >= 0) ::close(number);
    }
  };

  [[noreturn]] static void unreachable(const std::string& path, int error) {
    const std::string why = error == EAGAIN ? "nobody answers in time" : std::strerror(error);
    throw ServerUnreachable(path + ": " + why + "; leases are for programs of the server's user on its machine");
  }

  std::shared_ptr<detail::LeaseRegion> take(const std::string& path, const Ask& packet) const {
    auto connection = std::make_shared<Descriptor>(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    // At least a microsecond: 0 would mean for ever.
    const auto micros = std::max<std::int64_t>(1, std::chrono::duration_cast<std::chrono::microseconds>(line_->timeout()).count());
    timeval patience{static_cast<time_t>(micros / 1'000'000), static_cast<suseconds_t>(micros % 1'000'000)};
    ::setsockopt(connection->number, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(connection->number, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) unreachable(path, ENAMETOOLONG);
    std::memcpy(address.sun_path, path.data(), path.size());
    if (::connect(connection->number, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::send(connection->number, packet.data(), packet.size(), MSG_NOSIGNAL) < 0)
      unreachable(path, errno);
    std::array<std::uint8_t, kAnswerBytes + kMaxText> answer{};
    const auto [size, descriptor] = receive(path, connection->number, answer);
    const Descriptor memory(descriptor);
    return map(path, answer, size, memory.number, std::move(connection));
  }

  template <std::size_t N>
  static std::pair<std::size_t, int> receive(const std::string& path, int connection, std::array<std::uint8_t, N>& answer) {
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    iovec part{answer.data(), answer.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t size = ::recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    if (size < 0) unreachable(path, errno);
    int descriptor = -1;
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
      std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    return {static_cast<std::size_t>(size), descriptor};
  }

  template <class Number>
  static Number number_at(const std::uint8_t* packet, std::size_t at) {
    Number number;
    std::memcpy(&number, packet + at, sizeof number);
    return number;
  }

  template <std::size_t N>
  static std::shared_ptr<detail::LeaseRegion> map(const std::string& path, const std::array<std::uint8_t, N>& answer,
                                                  std::size_t size, int descriptor, std::shared_ptr<Descriptor> connection) {
    if (size < kAnswerBytes || std::memcmp(answer.data(), "SLL1", 4) != 0)
      throw ServerUnreachable(path + ": what listens there lends no leases");
    const std::uint8_t* packet = answer.data();
    if (const auto code = number_at<std::uint16_t>(packet, 4); code != 0) {
      std::string text(reinterpret_cast<const char*>(packet) + kAnswerBytes, size - kAnswerBytes);
      std::rethrow_exception(
          detail::error_of({detail::known_code(code), std::move(text), "lease", number_at<std::uint64_t>(packet, 40), ""}));
    }
    auto region = std::make_shared<detail::LeaseRegion>();
    region->region = number_at<std::uint32_t>(packet, 8);
    region->generation = number_at<std::uint32_t>(packet, 12);
    region->frames = number_at<std::uint32_t>(packet, 16);
    region->frame_bytes = number_at<std::uint64_t>(packet, 24);
    region->stride = number_at<std::uint64_t>(packet, 32);
    const auto bytes = static_cast<std::size_t>(region->frames * region->stride);
    void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, 0);
    if (memory == MAP_FAILED) unreachable(path, errno);
    // A forked child must not write there when the server has lent it to somebody else.
    ::madvise(memory, bytes, MADV_DONTFORK);
    region->memory = static_cast<std::uint8_t*>(memory);
    for (std::uint32_t frame = 0; frame < region->frames; ++frame) region->free.push_back(frame);
    region->give_back = [memory, bytes, connection = std::move(connection)] {
      ::munmap(memory, bytes);
      const Ask goodbye = ask(2, "", 0, 0);
      static_cast<void>(::send(connection->number, goodbye.data(), goodbye.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
    };
    return region;
  }

  detail::Line* line_;
  std::shared_ptr<detail::LeaseRegion> region_;
};

}  // namespace slotline
