// Leases as the calls of a client see them: regions of shared memory that the server lends, and which of their frames requests use.
// Pure: no socket, no mapping; those are in lease.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "errors.hpp"
#include "tensors.hpp"

namespace slotline::detail {

// One lease. It ends with its connection; its memory stays until the last frame, or result that looks at one, is gone.
struct LeaseRegion {
  std::uint32_t region = 0;
  std::uint32_t generation = 0;
  std::uint32_t frames = 0;
  std::uint64_t frame_bytes = 0;
  std::uint64_t stride = 0;
  std::uint8_t* memory = nullptr;
  bool is_ended = false;
  std::size_t closing = 0;  // frames that were closed and that the server still uses
  std::deque<std::uint32_t> free;
  std::function<void()> give_back;

  LeaseRegion() = default;
  LeaseRegion(const LeaseRegion&) = delete;
  LeaseRegion& operator=(const LeaseRegion&) = delete;

  ~LeaseRegion() {
    if (give_back) give_back();
  }

  std::uint8_t* at(std::uint32_t frame) const { return memory + frame * stride; }

  void check() const {
    if (is_ended) throw ConnectionLost("the lease ended with its connection: leave it, and ask the client for another");
  }
};

// One frame that is open in the program, or that a request uses.
struct LeaseSlot {
  std::shared_ptr<LeaseRegion> region;
  std::uint32_t frame = 0;
  std::size_t uses = 0;
  bool is_open = true;

  void use() { ++uses; }

  void release() {
    if (--uses > 0 || is_open) return;
    --region->closing;
    region->free.push_back(frame);
  }

  void close() {
    if (!std::exchange(is_open, false)) return;
    if (uses > 0) {
      ++region->closing;
    } else {
      region->free.push_back(frame);
    }
  }

  // Throw unless a request may name the frame: for an output nobody else may use it.
  void check(bool for_output) const {
    if (!is_open) throw std::logic_error("the frame is closed: take another from its lease");
    region->check();
    if (for_output && uses > 0) throw std::logic_error("the frame is busy: an output needs one that no request uses");
  }

  flatbuffers::Offset<LeaseRef> write(flatbuffers::FlatBufferBuilder& builder, std::uint64_t nbytes) const {
    return CreateLeaseRef(builder, region->region, region->generation, frame, nbytes);
  }
};

// The leases of one client, and the frames of each request whose frames are not free yet.
class LeaseBook {
 public:
  void add(const std::shared_ptr<LeaseRegion>& region) {
    regions_.erase(std::remove_if(regions_.begin(), regions_.end(), [](const auto& known) { return known.expired(); }),
                   regions_.end());
    regions_.push_back(region);
  }

  bool is_waiting() const { return !held_.empty(); }

  void hold(std::uint64_t request, const FramePlace& place) {
    place->use();
    held_[request].push_back(place);
  }

  // Take note that the server has done with a request's frames.
  void release(std::uint64_t request) {
    const auto found = held_.find(request);
    if (found == held_.end()) return;
    const auto places = std::move(found->second);
    held_.erase(found);
    for (const FramePlace& place : places) place->release();
  }

  // End every lease: their connection has ended.
  void lose() {
    for (const auto& known : std::exchange(regions_, {})) {
      if (const auto region = known.lock()) region->is_ended = true;
    }
    for (const auto& [request, places] : std::exchange(held_, {})) {
      for (const FramePlace& place : places) place->release();
    }
  }

  // Return the region that a reply names, nullptr when it is none of ours, or the frame is not there.
  std::shared_ptr<LeaseRegion> find(const LeaseRef& ref) const {
    for (const auto& known : regions_) {
      const auto region = known.lock();
      if (region == nullptr || region->region != ref.region() || region->generation != ref.generation()) continue;
      return ref.frame() < region->frames && ref.nbytes() <= region->frame_bytes ? region : nullptr;
    }
    return nullptr;
  }

 private:
  std::vector<std::weak_ptr<LeaseRegion>> regions_;
  std::unordered_map<std::uint64_t, std::vector<FramePlace>> held_;
};

}  // namespace slotline::detail
