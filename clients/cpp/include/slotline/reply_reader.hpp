// Replies: verified, checked, then read in place. Pure: no socket, no clock. Nothing is read before its check.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "errors.hpp"
#include "lease_state.hpp"
#include "limits.hpp"
#include "result.hpp"

namespace slotline::detail {

// Return the message of a header once the verifier has proven it sound and of our version; nullptr when it is not.
inline const Message* verified(Bytes header) {
  if (header.size() > kMaxHeaderBytes) return nullptr;
  flatbuffers::Verifier verifier(header.data(), header.size());
  return VerifyMessageBuffer(verifier) ? GetMessage(header.data()) : nullptr;
}

// Return the request id of a header that need not be sound elsewhere, so that its call can be told; none when that is not
// readable.
inline std::optional<std::uint64_t> id_if_readable(Bytes header) {
  const auto read = [&](std::int64_t at, auto value) {
    std::memcpy(&value, header.data() + at, sizeof value);
    return value;
  };
  const auto size = static_cast<std::int64_t>(header.size());
  if (size < 12 || std::memcmp(header.data() + 4, MessageIdentifier(), 4) != 0) return std::nullopt;
  const std::int64_t table = read(0, std::uint32_t{});
  if (table + 4 > size) return std::nullopt;
  const std::int64_t vtable = table - read(table, std::int32_t{});
  if (vtable < 0 || vtable + 6 > size || read(vtable, std::uint16_t{}) < 6) return std::nullopt;
  const std::uint16_t offset = read(vtable + 4, std::uint16_t{});
  const std::int64_t route = table + offset;
  if (offset < 4 || route + static_cast<std::int64_t>(sizeof(Route)) > size) return std::nullopt;
  return read(route, std::uint64_t{});
}

// Makes Results of verified replies.
class ReplyReader {
 public:
  // Return the result that a reply's frames, the header first, hold; throws BadReply. The header is verified.
  static Result read(std::vector<Frame> frames, const LeaseBook& leases) {
    Result result;
    result.frames_ = std::move(frames);
    const Message* message = GetMessage(result.frames_[0].bytes().data());
    result.reply_ = message->body_as_InferOut();
    require(result.reply_ != nullptr, "body: expected an InferOut");
    std::vector<bool> used(result.frames_.size(), false);
    used[0] = true;
    if (result.reply_->outputs() != nullptr) {
      for (const Tensor* tensor : *result.reply_->outputs()) result.outputs_.push_back(output(*tensor, result, used, leases));
    }
    for (const bool is_used : used) require(is_used, "payload_frames: a frame that no tensor uses");
    return result;
  }

 private:
  static void require(bool holds, const std::string& otherwise) {
    if (!holds) throw BadReply("not a valid reply: " + otherwise);
  }

  static Output output(const Tensor& tensor, Result& result, std::vector<bool>& used, const LeaseBook& leases) {
    Output output;
    output.name = tensor.name()->string_view();
    output.dtype = tensor.dtype();
    const std::string name = "output " + std::string(output.name.substr(0, 64));
    require(output.dtype >= DType::BOOL && output.dtype <= DType::ENCODED, name + ": unknown datatype");
    if (tensor.shape() != nullptr) output.shape.assign(tensor.shape()->begin(), tensor.shape()->end());
    output.bytes =
        tensor.place() == Place::Lease ? leased(tensor, result, leases, name) : content(tensor, result.frames_, used, name);
    check_size(output, name);
    // A header may place 64-bit numbers at any multiple of 4: only some languages' builders obey force_align.
    if (!is_aligned(output.bytes.data())) output.bytes = result.realigned_.emplace_back(output.bytes).bytes();
    return output;
  }

  static Bytes content(const Tensor& tensor, const std::vector<Frame>& frames, std::vector<bool>& used, const std::string& name) {
    Bytes bytes;
    if (tensor.place() == Place::Inline) {
      require(tensor.inline_data() != nullptr, name + ": no inline bytes");
      bytes = {tensor.inline_data()->data(), tensor.inline_data()->size()};
    } else {
      require(tensor.place() == Place::Frame, name + ": expected a frame or inline bytes");
      const std::size_t index = std::size_t{1} + tensor.frame();
      require(index < frames.size() && !used[index], name + ": its frame is not there or used twice");
      used[index] = true;
      bytes = frames[index].bytes();
    }
    require(bytes.size() == tensor.nbytes(), name + ": nbytes differs from the bytes there");
    return bytes;
  }

  static Bytes leased(const Tensor& tensor, Result& result, const LeaseBook& leases, const std::string& name) {
    const LeaseRef* ref = tensor.lease();
    const auto region = ref == nullptr ? nullptr : leases.find(*ref);
    require(region != nullptr && ref->nbytes() == tensor.nbytes(), name + ": expected a frame of this client's");
    result.leases_.push_back(region);
    return {region->at(ref->frame()), static_cast<std::size_t>(tensor.nbytes())};
  }

  static void check_size(const Output& output, const std::string& name) {
    require(output.shape.size() <= kMaxRank, name + ": too many dimensions");
    const std::size_t item = item_bytes(output.dtype);
    // Each element of BYTES has at least its length. With that, a product above the bytes there ends the count before it
    // overflows.
    const std::uint64_t most = output.bytes.size() / (item != 0 ? item : 4);
    std::uint64_t count = 1;
    bool is_empty = false;
    for (const std::int64_t dim : output.shape) is_empty = is_empty || dim == 0;
    for (const std::int64_t dim : output.shape) {
      require(dim >= 0, name + ": a negative dimension");
      if (is_empty) continue;
      require(count <= most / static_cast<std::uint64_t>(dim) || output.dtype == DType::ENCODED,
              name + ": more elements than bytes");
      count *= static_cast<std::uint64_t>(dim);
    }
    if (is_empty) count = 0;
    if (output.dtype == DType::ENCODED) {
      require(output.shape == Shape{1}, name + ": expected shape [1]");
    } else if (output.dtype == DType::BYTES) {
      try {
        unpack_bytes(output.bytes, count);
      } catch (const std::invalid_argument& error) {
        require(false, name + ": " + error.what());
      }
    } else {
      require(output.bytes.size() == count * item, name + ": nbytes differs from shape and datatype");
    }
  }
};

}  // namespace slotline::detail
