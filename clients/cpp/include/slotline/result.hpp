// What a caller sends with a request and gets back: the options and the result.
#pragma once

#include <slotline/infer_generated.h>

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "frame.hpp"
#include "tensors.hpp"

namespace slotline {

using ParamValue = std::variant<bool, std::int64_t, double, std::string>;
using Params = std::map<std::string, ParamValue>;

// What a request may say besides model and inputs.
struct Options {
  // Time left for the answer, which is also how long the call lasts. 0: the lane's default budget holds, and the call lasts as long
  // as the client's timeout; a client with less patience than that asks for no more than it has.
  std::uint64_t budget_us = 0;
  // Instrument, camera or stream; echoed.
  std::uint64_t key = 0;
  // What the key means to the server: nothing, one after the other, or that only the newest, or the newest latest_n, count.
  KeyPolicy key_policy = KeyPolicy::OneByOne;
  std::uint16_t latest_n = 0;
  // Capture time by the caller's own clock; echoed.
  std::uint64_t born_us = 0;
  // False = never run it twice when a worker dies under it.
  bool idempotent = true;
  // False = borrowed inputs of 64 KiB and more are not copied but lent until the call has its result; after an error their memory
  // must stay for as long as the Client.
  bool copy = true;
  // "" = by the server's policy.
  std::string version;
  // Names wanted, none = all.
  std::vector<std::string> outputs;
  // Output -> the frame of a lease that it is to be put into, if it fits; each of them must be among `outputs`.
  std::map<std::string, FramePlace> output_frames;
  // For the server's stages.
  Params params;
  // 0 = the lane's default level, 1 = highest.
  std::uint8_t priority = 0;
  // Refuse NaN and Inf in the inputs.
  bool finite = false;
  // A text of the caller's own.
  std::string client_request_id;
  // Send the xxh64 of the payload, so that the server refuses what was damaged on the way.
  bool checksum = false;
};

// What a server says of its state: "starting", "serving", "degraded" or "draining", and how much it has to do.
struct Health {
  bool ok = false;
  std::string state;
  std::uint32_t queued = 0;
  std::uint32_t in_flight = 0;
};

namespace detail {
class ReplyReader;
}

// The outputs of one request, and what the server says about it. Movable; outputs are views of the reply, which it owns.
class Result {
 public:
  // Return one output; throws std::out_of_range.
  const Output& operator[](std::string_view name) const {
    for (const Output& output : outputs_) {
      if (output.name == name) return output;
    }
    throw std::out_of_range("no output " + std::string(name));
  }

  const std::vector<Output>& outputs() const noexcept { return outputs_; }
  std::string_view model() const { return text(reply_->model()); }
  std::string_view version() const { return text(reply_->version()); }
  std::uint8_t retries() const { return reply_->retries(); }         // how often a worker died under the request
  std::uint32_t backlog_us() const { return reply_->backlog_us(); }  // time before it got a slot

  // Return queue_us, run_us and batch of each stage, in pipeline order.
  std::vector<StageTime> timing() const {
    std::vector<StageTime> rows;
    if (reply_->timing() != nullptr) {
      for (const StageTime* row : *reply_->timing()) rows.push_back(*row);
    }
    return rows;
  }

  // Return what the server's stages say beside the tensors.
  Params params() const {
    Params params;
    if (reply_->params() != nullptr) {
      for (const Param* param : *reply_->params()) params.emplace(param->name()->str(), value_of(*param));
    }
    return params;
  }

 private:
  friend class detail::ReplyReader;

  static ParamValue value_of(const Param& param) {
    switch (param.ptype()) {
      case ParamType::Bool: return param.int_value() != 0;
      case ParamType::Int: return param.int_value();
      case ParamType::Double: return param.double_value();
      default: return std::string(text(param.text()));
    }
  }

  static std::string_view text(const flatbuffers::String* text) { return text == nullptr ? "" : text->string_view(); }

  std::vector<detail::Frame> frames_;  // the header first
  std::vector<detail::AlignedCopy> realigned_;
  std::vector<std::shared_ptr<const void>> leases_;  // that outputs are in
  std::vector<Output> outputs_;
  const InferOut* reply_ = nullptr;
};

}  // namespace slotline
