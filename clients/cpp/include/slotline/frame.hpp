// One received frame: its bytes, aligned for what is read from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <zmq.hpp>

#include "tensors.hpp"

namespace slotline::detail {

// The strictest alignment of anything that is read in place: 64-bit numbers.
inline constexpr std::size_t kAlignment = 8;

inline bool is_aligned(const void* at, std::size_t alignment = kAlignment) {
  return reinterpret_cast<std::uintptr_t>(at) % alignment == 0;
}

// Bytes copied to where numbers may be read in place.
class AlignedCopy {
 public:
  explicit AlignedCopy(Bytes bytes) : words_(new std::uint64_t[bytes.size() / kAlignment + 1]), size_(bytes.size()) {
    if (size_ > 0) std::memcpy(words_.get(), bytes.data(), size_);
  }

  Bytes bytes() const { return {reinterpret_cast<const std::uint8_t*>(words_.get()), size_}; }

 private:
  std::unique_ptr<std::uint64_t[]> words_;
  std::size_t size_;
};

// A frame as ZeroMQ received it. Its bytes stay where they are when a Frame is moved, so others may hold views of them.
class Frame {
 public:
  // ZeroMQ leaves small messages where its decoder put them, at any address; only those are copied. Messages of up to 33 bytes
  // lie inside the message_t itself and would move with it.
  explicit Frame(zmq::message_t message) : message_(std::make_unique<zmq::message_t>(std::move(message))) {
    bytes_ = {static_cast<const std::uint8_t*>(message_->data()), message_->size()};
    if (!is_aligned(bytes_.data())) {
      copy_ = std::make_unique<AlignedCopy>(bytes_);
      bytes_ = copy_->bytes();
      message_.reset();
    }
  }

  Bytes bytes() const { return bytes_; }

 private:
  std::unique_ptr<zmq::message_t> message_;
  std::unique_ptr<AlignedCopy> copy_;
  Bytes bytes_;
};

}  // namespace slotline::detail
