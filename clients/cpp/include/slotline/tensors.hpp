// Tensors as a caller gives and gets them, and the packed form of BYTES. No header layout here.
#pragma once

#include <slotline/infer_generated.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace slotline {

namespace detail {
struct LeaseSlot;
}

// A frame of a lease, as an input or the place of an output; see lease.hpp.
using FramePlace = std::shared_ptr<detail::LeaseSlot>;

// A view of values that something else owns (C++17 has no std::span).
template <class T>
class Span {
 public:
  Span() = default;
  Span(const T* data, std::size_t size) : data_(data), size_(size) {}

  const T* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  const T* begin() const noexcept { return data_; }
  const T* end() const noexcept { return data_ + size_; }
  const T& operator[](std::size_t index) const { return data_[index]; }

 private:
  const T* data_ = nullptr;
  std::size_t size_ = 0;
};

using Bytes = Span<std::uint8_t>;
using Shape = std::vector<std::int64_t>;

// Return the bytes of one element; 0 for BYTES and ENCODED, which have no fixed size.
inline std::size_t item_bytes(DType dtype) {
  switch (dtype) {
    case DType::BOOL:
    case DType::UINT8:
    case DType::INT8: return 1;
    case DType::UINT16:
    case DType::INT16:
    case DType::FP16:
    case DType::BF16: return 2;
    case DType::UINT32:
    case DType::INT32:
    case DType::FP32: return 4;
    case DType::UINT64:
    case DType::INT64:
    case DType::FP64: return 8;
    default: return 0;
  }
}

// Return the datatype that a C++ type stands for unless the caller names another of its size (BOOL, FP16, BF16).
template <class T>
constexpr DType dtype_of() {
  static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8, "BOOL is sent as std::uint8_t");
  if constexpr (std::is_floating_point_v<T>) return sizeof(T) == 4 ? DType::FP32 : DType::FP64;
  constexpr DType of_unsigned[] = {DType::UINT8, DType::UINT16, DType::UINT32, DType::UINT64};
  constexpr DType of_signed[] = {DType::INT8, DType::INT16, DType::INT32, DType::INT64};
  constexpr int log2_bytes = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
  return std::is_signed_v<T> ? of_signed[log2_bytes] : of_unsigned[log2_bytes];
}

// Return elements in the protocol's binary form: each a little-endian u32 length and its bytes.
inline std::vector<std::uint8_t> pack_bytes(const std::vector<std::string>& elements) {
  std::vector<std::uint8_t> packed;
  for (const std::string& element : elements) {
    const auto size = static_cast<std::uint32_t>(element.size());
    for (int shift = 0; shift < 32; shift += 8) packed.push_back(static_cast<std::uint8_t>(size >> shift));
    packed.insert(packed.end(), element.begin(), element.end());
  }
  return packed;
}

// Return the elements of the binary form as views of it; throws std::invalid_argument unless it holds exactly `count`.
inline std::vector<std::string_view> unpack_bytes(Bytes packed, std::size_t count) {
  std::vector<std::string_view> elements;
  std::size_t at = 0;
  for (std::size_t index = 0; index < count; ++index) {
    if (packed.size() - at < 4) throw std::invalid_argument("BYTES: a length is cut off");
    std::uint32_t size = 0;
    for (int byte = 3; byte >= 0; --byte) size = size << 8 | packed[at + static_cast<std::size_t>(byte)];
    at += 4;
    if (packed.size() - at < size) throw std::invalid_argument("BYTES: an element is cut off");
    elements.emplace_back(reinterpret_cast<const char*>(packed.data()) + at, size);
    at += size;
  }
  if (at != packed.size()) throw std::invalid_argument("BYTES: more bytes than elements");
  return elements;
}

// One input of a request. Values are little-endian, in C order. Made by the functions below.
struct Input {
  std::string name;
  DType dtype = DType::Unset;
  Shape shape;
  Bytes bytes;
  std::shared_ptr<const void> owner;  // of the bytes; none = they are the caller's, see Options::copy
  std::string content_type;           // ENCODED: such as "image/png"; "" when the server is to see for itself
  FramePlace leased = nullptr;        // the frame that has the bytes, when they are not sent; made by LeaseFrame::input
};

// Take values over as an input. Large ones are sent without another copy.
template <class T>
Input tensor(std::string name, Shape shape, std::vector<T> values, DType dtype = dtype_of<T>()) {
  auto owner = std::make_shared<const std::vector<T>>(std::move(values));
  const Bytes bytes(reinterpret_cast<const std::uint8_t*>(owner->data()), owner->size() * sizeof(T));
  return {std::move(name), dtype, std::move(shape), bytes, std::move(owner), ""};
}

// Let an input look at the caller's own memory, which must stay until the request is sent; with Options::copy = false, see there.
inline Input borrowed(std::string name, DType dtype, Shape shape, Bytes bytes) {
  return {std::move(name), dtype, std::move(shape), bytes, nullptr, ""};
}

// Copy an array that does not lie in C order into an input: each step along dimension n is strides[n] bytes, negative ones
// included, counted from `first`. A picture with padded rows, a part of one, a transposed matrix. With `is_big_endian` the values'
// bytes are turned about as well. Throws std::invalid_argument for a datatype without a fixed size, a negative dimension or a
// wrong number of strides.
inline Input strided(std::string name, DType dtype, Shape shape, const void* first, const std::vector<std::ptrdiff_t>& strides,
                     bool is_big_endian = false) {
  const std::size_t item = item_bytes(dtype);
  if (item == 0 || strides.size() != shape.size())
    throw std::invalid_argument(name + ": expected a fixed-size datatype and one stride a dimension");
  std::size_t count = 1;
  for (const std::int64_t dim : shape) {
    if (dim < 0) throw std::invalid_argument(name + ": a negative dimension");
    count *= static_cast<std::size_t>(dim);
  }
  std::vector<std::uint8_t> values(count * item);
  Shape index(shape.size(), 0);
  auto to = values.begin();
  for (std::size_t done = 0; done < count; ++done, to += static_cast<std::ptrdiff_t>(item)) {
    std::ptrdiff_t offset = 0;
    for (std::size_t dim = 0; dim < shape.size(); ++dim) offset += static_cast<std::ptrdiff_t>(index[dim]) * strides[dim];
    std::memcpy(&*to, static_cast<const std::uint8_t*>(first) + offset, item);
    if (is_big_endian) std::reverse(to, to + static_cast<std::ptrdiff_t>(item));
    for (std::size_t dim = shape.size(); dim > 0 && ++index[dim - 1] == shape[dim - 1]; --dim) index[dim - 1] = 0;
  }
  return tensor(std::move(name), std::move(shape), std::move(values), dtype);
}

// Take an array of byte strings (BYTES) as an input.
inline Input strings(std::string name, Shape shape, const std::vector<std::string>& elements) {
  return tensor(std::move(name), std::move(shape), pack_bytes(elements), DType::BYTES);
}

// Take the bytes of an encoded file as an input.
inline Input encoded(std::string name, std::vector<std::uint8_t> content, std::string content_type = "") {
  Input input = tensor(std::move(name), {1}, std::move(content), DType::ENCODED);
  input.content_type = std::move(content_type);
  return input;
}

// One output of a reply: views of the reply's bytes, valid as long as its Result.
struct Output {
  std::string_view name;
  DType dtype = DType::Unset;
  Shape shape;
  Bytes bytes;

  // Return the values; throws std::invalid_argument when T is not the datatype's type. BOOL is uint8, FP16 and BF16 are raw
  // uint16.
  template <class T>
  Span<T> values() const {
    const bool is_raw =
        (sizeof(T) == 1 && dtype == DType::BOOL) || (sizeof(T) == 2 && (dtype == DType::FP16 || dtype == DType::BF16));
    const bool fits = dtype_of<T>() == dtype || (is_raw && std::is_unsigned_v<T>) || (sizeof(T) == 1 && dtype == DType::ENCODED);
    if (!fits) throw std::invalid_argument(std::string(name) + ": is " + EnumNameDType(dtype));
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }

  // Return the elements of a BYTES output; throws std::invalid_argument when it is none.
  std::vector<std::string_view> elements() const {
    if (dtype != DType::BYTES) throw std::invalid_argument(std::string(name) + ": is " + EnumNameDType(dtype));
    std::size_t count = 1;
    for (const std::int64_t dim : shape) count *= static_cast<std::size_t>(dim);
    return unpack_bytes(bytes, count);
  }
};

}  // namespace slotline
