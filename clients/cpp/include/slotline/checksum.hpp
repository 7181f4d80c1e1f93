// The checksum of a request's payload: xxh64 with seed 0, over bytes that come in parts.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "tensors.hpp"

namespace slotline::detail {

class Checksum {
 public:
  // Go on with these bytes.
  void add(Bytes bytes) {
    total_ += bytes.size();
    std::size_t at = 0;
    if (held_bytes_ > 0) at = hold(bytes, 0);
    if (held_bytes_ == held_.size()) {
      take(held_.data());
      held_bytes_ = 0;
    }
    if (held_bytes_ > 0) return;
    for (; bytes.size() - at >= held_.size(); at += held_.size()) take(bytes.data() + at);
    hold(bytes, at);
  }

  // Return the checksum of all bytes so far.
  std::uint64_t value() const {
    std::uint64_t hash = kPrime5;
    if (total_ >= held_.size()) {
      hash = turned(lanes_[0], 1) + turned(lanes_[1], 7) + turned(lanes_[2], 12) + turned(lanes_[3], 18);
      for (const std::uint64_t lane : lanes_) hash = (hash ^ round(0, lane)) * kPrime1 + kPrime4;
    }
    hash += total_;
    std::size_t at = 0;
    for (; held_bytes_ - at >= 8; at += 8) hash = turned(hash ^ round(0, read<std::uint64_t>(at)), 27) * kPrime1 + kPrime4;
    for (; held_bytes_ - at >= 4; at += 4) hash = turned(hash ^ read<std::uint32_t>(at) * kPrime1, 23) * kPrime2 + kPrime3;
    for (; at < held_bytes_; ++at) hash = turned(hash ^ held_[at] * kPrime5, 11) * kPrime1;
    hash = (hash ^ hash >> 33) * kPrime2;
    hash = (hash ^ hash >> 29) * kPrime3;
    return hash ^ hash >> 32;
  }

 private:
  static constexpr std::uint64_t kPrime1 = 11'400'714'785'074'694'791u;
  static constexpr std::uint64_t kPrime2 = 14'029'467'366'897'019'727u;
  static constexpr std::uint64_t kPrime3 = 1'609'587'929'392'839'161u;
  static constexpr std::uint64_t kPrime4 = 9'650'029'242'287'828'579u;
  static constexpr std::uint64_t kPrime5 = 2'870'177'450'012'600'261u;

  static std::uint64_t turned(std::uint64_t word, int by) { return word << by | word >> (64 - by); }
  static std::uint64_t round(std::uint64_t lane, std::uint64_t word) { return turned(lane + word * kPrime2, 31) * kPrime1; }

  template <class T>
  std::uint64_t read(std::size_t at) const {
    T word;
    std::memcpy(&word, held_.data() + at, sizeof word);
    return word;
  }

  // Hold the bytes from `at` until there is a block of them; return where those that are not held begin.
  std::size_t hold(Bytes bytes, std::size_t at) {
    const std::size_t count = std::min(bytes.size() - at, held_.size() - held_bytes_);
    if (count > 0) std::memcpy(held_.data() + held_bytes_, bytes.data() + at, count);
    held_bytes_ += count;
    return at + count;
  }

  void take(const std::uint8_t* block) {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      std::uint64_t word;
      std::memcpy(&word, block + 8 * lane, sizeof word);
      lanes_[lane] = round(lanes_[lane], word);
    }
  }

  std::array<std::uint64_t, 4> lanes_ = {kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
  std::array<std::uint8_t, 32> held_{};
  std::size_t held_bytes_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace slotline::detail
