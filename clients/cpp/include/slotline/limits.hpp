// Limits of the wire; the server's own are in its Welcome.
#pragma once

#include <cstddef>
#include <cstdint>

namespace slotline::detail {

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensors travel little-endian and are not converted here"
#endif

inline constexpr std::size_t kMaxHeaderBytes = 65'536;
// Of the header; the rest is for names, shapes and parameters.
inline constexpr std::size_t kMaxInlineTotalBytes = kMaxHeaderBytes / 4 * 3;
inline constexpr std::size_t kMaxInlineBytes = 4'096;
// From here on a frame is lent to the socket when its owner allows that; below it, copying is cheaper.
inline constexpr std::size_t kByReferenceBytes = 65'536;
inline constexpr std::size_t kMaxPacked = 64;
inline constexpr std::size_t kMaxRank = 8;

// What infer_many keeps in flight: four packed messages, and no more than a lane's backlog takes by default.
inline constexpr std::size_t kManyInFlight = 256;
inline constexpr std::size_t kManyBytes = 16u << 20;

// What the server takes, from its Welcome; 0 = it did not say.
struct ServerLimits {
  std::uint64_t max_header = 0;
  std::uint64_t max_payload = 0;
  std::uint64_t max_frames = 0;
  std::uint64_t max_in_flight = 0;
  std::uint64_t default_budget_us = 0;  // the smallest of all lanes
  std::uint64_t max_budget_us = 0;
};

}  // namespace slotline::detail
