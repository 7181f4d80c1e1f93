// Requests as messages. Pure: no socket, no clock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>
#include <zmq.hpp>

#include "checksum.hpp"
#include "errors.hpp"
#include "lease_state.hpp"
#include "limits.hpp"
#include "result.hpp"

namespace slotline::detail {

using Parts = std::vector<zmq::message_t>;

// One request, ready to be sent: the header and its payload frames.
struct Written {
  Parts parts;
  std::size_t bytes = 0;
};

// Writes messages. Owned by one client; reuses one builder.
class RequestWriter {
 public:
  // Take over what the server takes.
  void use_limits(const ServerLimits& limits) { limits_ = limits; }

  // Return the Hello that starts a connection.
  Parts hello(std::uint64_t id) {
    builder_.Clear();
    const auto identifiers = builder_.CreateVectorOfStrings({MessageIdentifier()});
    const auto body = CreateHelloBody(builder_, builder_.CreateString("slotline-cpp/0.1.0"), identifiers, true);
    return finish(plain_route(id, Kind::Hello), Body::HelloBody, body.Union());
  }

  // Return the message that tells the server to end a request.
  Parts cancel(std::uint64_t id) {
    builder_.Clear();
    return finish(plain_route(id, Kind::Cancel), Body::CancelBody, CreateCancelBody(builder_).Union());
  }

  // Return a question about the server's state, or with a name a model's.
  Parts health(std::uint64_t id, HealthScope scope, const std::string& model) {
    builder_.Clear();
    const auto body = CreateHealthBody(builder_, scope, text(model));
    return finish(plain_route(id, Kind::Health), Body::HealthBody, body.Union());
  }

  // Return one request; with may_pack its header is marked as part of a Packed message when it has no frames.
  Written infer(std::uint64_t id, const std::string& model, const std::vector<Input>& inputs, const Options& options,
                bool may_pack) {
    builder_.Clear();
    Parts frames;
    std::vector<flatbuffers::Offset<Tensor>> tensors;
    std::size_t room = kMaxInlineTotalBytes;
    std::size_t frame_bytes = 0;
    Checksum checksum;
    std::vector<Bytes> in_frames;
    std::vector<Bytes> in_leases;
    for (const Input& input : inputs) {
      if (input.leased != nullptr) {
        tensors.push_back(leased(input));
        in_leases.push_back(input.bytes);
        continue;
      }
      const bool is_inline = input.bytes.size() <= std::min(kMaxInlineBytes, room);
      tensors.push_back(tensor(input, is_inline, frames.size()));
      if (is_inline) {
        room -= input.bytes.size();
        if (options.checksum) checksum.add(input.bytes);
      } else {
        in_frames.push_back(input.bytes);
        frame_bytes += input.bytes.size();
        frames.push_back(frame(input, options.copy));
      }
    }
    if (options.checksum) {
      for (const Bytes bytes : in_frames) checksum.add(bytes);
      for (const Bytes bytes : in_leases) checksum.add(bytes);
    }
    const auto flags =
        static_cast<std::uint16_t>((options.idempotent ? kIdempotent : 0) | (may_pack && frames.empty() ? kPacked : 0) |
                                   (options.output_frames.empty() ? 0 : kReplyInLease));
    const Route route(id, options.budget_us, options.born_us, options.key, 0, 0, flags, static_cast<std::uint16_t>(frames.size()),
                      0, Kind::InferRequest, options.priority, 0);
    Parts parts = finish(route, Body::Infer, body(model, tensors, options, options.checksum ? checksum.value() : 0).Union());
    const std::size_t bytes = parts[0].size() + frame_bytes;
    check(parts[0].size(), frames.size(), bytes);
    std::move(frames.begin(), frames.end(), std::back_inserter(parts));
    return {std::move(parts), bytes};
  }

 private:
  static constexpr int kIdempotent = static_cast<int>(Flag::Idempotent);
  static constexpr int kPacked = static_cast<int>(Flag::Packed);
  static constexpr int kReplyInLease = static_cast<int>(Flag::ReplyInLease);

  static Route plain_route(std::uint64_t id, Kind kind) { return Route(id, 0, 0, 0, 0, 0, 0, 0, 0, kind, 0, 0); }

  // Refuse what the server would cut off instead of answering it.
  void check(std::size_t header_bytes, std::size_t frames, std::size_t bytes) const {
    check_limit("header", header_bytes, limits_.max_header == 0 ? kMaxHeaderBytes : limits_.max_header, "bytes");
    check_limit("payload_frames", frames, limits_.max_frames, "frames");
    check_limit("inputs", bytes, limits_.max_payload, "bytes");
  }

  static void check_limit(const char* field, std::uint64_t got, std::uint64_t limit, const char* unit) {
    if (limit == 0 || got <= limit) return;
    const std::string message = std::string(field) + ": expected at most " + std::to_string(limit) + " " + unit +
                                " (the server's limit), got " + std::to_string(got);
    throw RequestRefused({Code::TooLarge, message, field, 0, ""});
  }

  flatbuffers::Offset<Tensor> tensor(const Input& input, bool is_inline, std::size_t frame) {
    const auto name = builder_.CreateString(input.name);
    flatbuffers::Offset<flatbuffers::Vector<std::int64_t>> shape;
    if (!input.shape.empty()) shape = builder_.CreateVector(input.shape);
    flatbuffers::Offset<flatbuffers::Vector<std::uint8_t>> inline_data;
    if (is_inline) {
      builder_.ForceVectorAlignment(input.bytes.size(), 1, 16);
      inline_data = builder_.CreateVector(input.bytes.data(), input.bytes.size());
    }
    const auto content_type = text(input.content_type);
    return CreateTensor(builder_, name, input.dtype, is_inline ? Place::Inline : Place::Frame, shape,
                        is_inline ? std::uint16_t{0} : static_cast<std::uint16_t>(frame), input.bytes.size(), inline_data, 0,
                        content_type);
  }

  flatbuffers::Offset<Tensor> leased(const Input& input) {
    input.leased->check(false);
    const auto name = builder_.CreateString(input.name);
    flatbuffers::Offset<flatbuffers::Vector<std::int64_t>> shape;
    if (!input.shape.empty()) shape = builder_.CreateVector(input.shape);
    const auto lease = input.leased->write(builder_, input.bytes.size());
    return CreateTensor(builder_, name, input.dtype, Place::Lease, shape, 0, input.bytes.size(), 0, lease);
  }

  flatbuffers::Offset<RequestedOutput> wanted(const std::string& output, const Options& options) {
    const auto name = builder_.CreateString(output);
    const auto frame = options.output_frames.find(output);
    if (frame == options.output_frames.end()) return CreateRequestedOutput(builder_, name);
    frame->second->check(true);
    return CreateRequestedOutput(builder_, name, Place::Lease,
                                 frame->second->write(builder_, frame->second->region->frame_bytes));
  }

  flatbuffers::Offset<Infer> body(const std::string& model, const std::vector<flatbuffers::Offset<Tensor>>& tensors,
                                  const Options& options, std::uint64_t checksum) {
    const auto name = builder_.CreateString(model);
    const auto version = text(options.version);
    const auto inputs = builder_.CreateVector(tensors);
    std::vector<flatbuffers::Offset<RequestedOutput>> wanted;
    for (const std::string& output : options.outputs) wanted.push_back(this->wanted(output, options));
    std::vector<flatbuffers::Offset<Param>> params;
    for (const auto& [param, value] : options.params) params.push_back(this->param(param, value));
    const auto outputs_at = wanted.empty() ? 0 : builder_.CreateVector(wanted);
    const auto params_at = params.empty() ? 0 : builder_.CreateVector(params);
    return CreateInfer(builder_, name, version, inputs, outputs_at, params_at, text(options.client_request_id),
                       options.key_policy, options.latest_n, options.finite, checksum);
  }

  flatbuffers::Offset<Param> param(const std::string& name, const ParamValue& value) {
    const auto name_at = builder_.CreateString(name);
    if (const auto* flag = std::get_if<bool>(&value)) return CreateParam(builder_, name_at, ParamType::Bool, *flag ? 1 : 0);
    if (const auto* number = std::get_if<std::int64_t>(&value)) return CreateParam(builder_, name_at, ParamType::Int, *number);
    if (const auto* number = std::get_if<double>(&value)) return CreateParam(builder_, name_at, ParamType::Double, 0, *number);
    return CreateParam(builder_, name_at, ParamType::Text, 0, 0, builder_.CreateString(std::get<std::string>(value)));
  }

  flatbuffers::Offset<flatbuffers::String> text(const std::string& text) {
    return text.empty() ? 0 : builder_.CreateString(text);
  }

  Parts finish(const Route& route, Body type, flatbuffers::Offset<void> body) {
    FinishMessageBuffer(builder_, CreateMessage(builder_, &route, nullptr, 0, type, body));
    Parts parts;
    parts.emplace_back(builder_.GetBufferPointer(), builder_.GetSize());
    return parts;
  }

  // Return a payload frame: the input's own memory where it is large and stays, else a copy.
  static zmq::message_t frame(const Input& input, bool copy) {
    const std::uint8_t* data = input.bytes.data();
    const std::size_t size = input.bytes.size();
    if (size < kByReferenceBytes || (input.owner == nullptr && copy)) return {data, size};
    using Owner = std::shared_ptr<const void>;
    const auto release = [](void*, void* owner) { delete static_cast<Owner*>(owner); };
    return {const_cast<std::uint8_t*>(data), size, release, new Owner(input.owner)};
  }

  flatbuffers::FlatBufferBuilder builder_{1024};
  ServerLimits limits_;
};

}  // namespace slotline::detail
