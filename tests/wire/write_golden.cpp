// Writes one message of every kind into a folder, as NAME.bin, by the generated C++ code. Those that golden_messages.py has too have
// the same values. The others are what our own encoder is not asked for there: a part of a stream, credit for more, a leased tensor,
// the release of its frame, a trace.
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "infer_generated.h"

namespace {

using namespace slotline;  // the messages' own names
using flatbuffers::Offset;

class Writer {
 public:
  explicit Writer(std::string folder) : folder_(std::move(folder)) {}

  void WriteAll() {
    WriteRequests();
    WriteReplies();
    WriteQuestions();
    WriteAnswers();
    WriteRest();
  }

 private:
  static constexpr uint16_t kFinal = 1, kStream = 2, kIdempotent = 4, kTraceSampled = 16, kReplyInLease = 32, kReleased = 64;

  std::string folder_;
  flatbuffers::FlatBufferBuilder b_;

  static Route Ids(Kind kind, uint16_t flags = 0, uint16_t frames = 0, uint32_t seq = 0) {
    return Route(7, 0, 1'234'567, 42, seq, 0, flags, frames, 0, kind, 0, 0);
  }

  template <class T>
  void Save(const std::string& name, const Route& route, Body type, Offset<T> body, const TraceContext* trace = nullptr,
            Offset<flatbuffers::String> tracestate = 0) {
    FinishMessageBuffer(b_, CreateMessage(b_, &route, trace, tracestate, type, body.Union()));
    std::ofstream file(folder_ + "/" + name + ".bin", std::ios::binary);
    file.write(reinterpret_cast<const char*>(b_.GetBufferPointer()), b_.GetSize());
    b_.Clear();
  }

  static std::vector<uint8_t> Counting(int first, int count) {
    std::vector<uint8_t> bytes;
    for (int at = 0; at < count; ++at) bytes.push_back(static_cast<uint8_t>(first + at));
    return bytes;
  }

  Offset<flatbuffers::Vector<int64_t>> Shape(const std::vector<int64_t>& shape) {
    return shape.empty() ? 0 : b_.CreateVector(shape);
  }

  Offset<Tensor> Inline(const char* name, DType dtype, const std::vector<int64_t>& shape, const std::vector<uint8_t>& bytes) {
    b_.ForceVectorAlignment(bytes.size(), 1, 16);
    const auto data = b_.CreateVector(bytes);
    const auto text = b_.CreateString(name);
    return CreateTensor(b_, text, dtype, Place_Inline, Shape(shape), 0, bytes.size(), data);
  }

  Offset<Tensor> Framed(const char* name, DType dtype, const std::vector<int64_t>& shape, uint16_t frame, uint64_t nbytes,
                        const char* content_type = nullptr) {
    const auto type = content_type == nullptr ? 0 : b_.CreateString(content_type);
    const auto text = b_.CreateString(name);
    return CreateTensor(b_, text, dtype, Place_Frame, Shape(shape), frame, nbytes, 0, 0, type);
  }

  Offset<Tensor> Leased(const char* name, uint64_t nbytes) {
    const auto lease = CreateLeaseRef(b_, 3, 17, 2, nbytes);
    const auto text = b_.CreateString(name);
    return CreateTensor(b_, text, DType_UINT8, Place_Lease, Shape({1, 480, 640}), 0, nbytes, 0, lease);
  }

  Offset<flatbuffers::Vector<Offset<Param>>> Params() {
    const std::vector<Offset<Param>> params = {
        CreateParamDirect(b_, "threshold", ParamType_Double, 0, 0.5),
        CreateParamDirect(b_, "top", ParamType_Int, 4),
        CreateParamDirect(b_, "boxes", ParamType_Bool, 1),
        CreateParamDirect(b_, "line", ParamType_Text, 0, 0, "k\xc3\xa4" "fer"),
    };
    return b_.CreateVector(params);
  }

  Offset<flatbuffers::Vector<const StageTime*>> Timing() {
    const std::vector<StageTime> rows = {{10, 20, 1}, {11, 21, 2}, {12, 22, 32}, {13, 23, 1}};
    return b_.CreateVectorOfStructs(rows);
  }

  Offset<RequestedOutput> Wanted(const char* name) { return CreateRequestedOutput(b_, b_.CreateString(name)); }

  void WriteRequests() {
    const auto tick = b_.CreateVector(std::vector{Inline("x", DType_FP32, {1, 20}, Counting(0, 80))});
    const auto ticks = CreateInfer(b_, b_.CreateString("ticks"), 0, tick);
    Save("tick_request", Route(7, 5'000, 1'234'567, 42, 0, 0, kIdempotent, 0, 0, Kind_InferRequest, 0, 0), Body_Infer, ticks);

    const auto inputs = b_.CreateVector(std::vector{
        Framed("image", DType_ENCODED, {1}, 0, 90'000, "image/png"), Framed("mask", DType_UINT8, {1, 48, 64}, 1, 3'072),
        Inline("gain", DType_FP64, {}, Counting(0, 8)),
        Inline("label", DType_BYTES, {2}, {3, 0, 0, 0, 'a', 'b', 'c', 3, 0, 0, 0, 'd', 'e', 'f'})});
    const auto outputs = b_.CreateVector(std::vector{Wanted("verdict"), Wanted("boxes")});
    const auto params = Params();
    const auto model = b_.CreateString("qc"), version = b_.CreateString("2"), own = b_.CreateString("part 0815");
    const auto full =
        CreateInfer(b_, model, version, inputs, outputs, params, own, KeyPolicy_LatestN, 3, true, 0xDEADBEEF);
    Save("full_request", Route(8, 200'000, 0, 9, 0, 0, kIdempotent | kTraceSampled, 2, 0, Kind_InferRequest, 1, 0), Body_Infer, full);
  }

  void WriteReplies() {
    const auto score = b_.CreateVector(std::vector{Inline("y", DType_FP32, {1, 3}, Counting(100, 12))});
    auto timing = Timing();
    auto reply = CreateInferOut(b_, b_.CreateString("ticks"), b_.CreateString("1"), score, 0, timing, 1, 250);
    Save("tick_reply", Ids(Kind_InferReply, kFinal), Body_InferOut, reply);

    const auto map = b_.CreateVector(std::vector{Framed("map", DType_FP32, {1, 6, 24, 24}, 0, 13'824)});
    timing = Timing();
    reply = CreateInferOut(b_, b_.CreateString("qc"), b_.CreateString("3"), map, 0, timing);
    Save("frame_reply", Ids(Kind_InferReply, kFinal, 1), Body_InferOut, reply);

    const auto failure = CreateFailureDirect(b_, Code_Busy, "backlog: expected at most 256, got 257", 5'000, "broker", "backlog");
    Save("error", Ids(Kind_Error, kFinal), Body_Failure, failure);
  }

  void WriteQuestions() {
    Save("cancel", Ids(Kind_Cancel), Body_CancelBody, CreateCancelBodyDirect(b_, "no longer needed"));
    const auto identifiers = b_.CreateVectorOfStrings({"SLT1"});
    Save("hello", Ids(Kind_Hello), Body_HelloBody, CreateHelloBody(b_, b_.CreateString("golden/1.0"), identifiers, true));
    Save("health", Ids(Kind_Health), Body_HealthBody, CreateHealthBodyDirect(b_, HealthScope_ModelReady, "ticks", "1"));
    Save("metadata", Ids(Kind_Metadata), Body_MetadataBody, CreateMetadataBodyDirect(b_, "ticks"));
    const std::vector<Offset<Param>> share = {CreateParamDirect(b_, "share", ParamType_Double, 0, 0.1)};
    Save("control", Ids(Kind_Control), Body_ControlBody,
         CreateControlBodyDirect(b_, ControlOp_SetWeight, "ticks", "2", &share));
  }

  void WriteAnswers() {
    const auto limits = CreateLimits(b_, 65'536, 1 << 26, 64, 256, 200'000, 60'000'000);
    const auto server = b_.CreateString("slotline/0.1.0"), lease_socket = b_.CreateString("lease.sock");
    Save("welcome", Ids(Kind_Welcome, kFinal), Body_WelcomeBody,
         CreateWelcomeBody(b_, server, 0x1122334455667788, limits, lease_socket));
    Save("health_reply", Ids(Kind_HealthReply, kFinal), Body_HealthOut, CreateHealthOutDirect(b_, true, "serving", 3, 5));

    const std::vector<int64_t> in = {-1, 20}, out = {-1, 3};
    const std::vector<Offset<TensorSpec>> inputs = {CreateTensorSpecDirect(b_, "x", DType_FP32, &in)};
    const std::vector<Offset<TensorSpec>> outputs = {CreateTensorSpecDirect(b_, "y", DType_FP32, &out),
                                                     CreateTensorSpecDirect(b_, "scalar", DType_INT64)};
    const auto inputs_at = b_.CreateVector(inputs), outputs_at = b_.CreateVector(outputs);
    const auto versions = b_.CreateVectorOfStrings({"1", "2"}), extensions = b_.CreateVectorOfStrings({"keys"});
    const auto stages = b_.CreateVectorOfStrings({"decode", "preprocess", "infer", "postprocess"});
    const auto name = b_.CreateString("ticks"), platform = b_.CreateString("onnxruntime");
    Save("metadata_reply", Ids(Kind_MetadataReply, kFinal), Body_MetadataOut,
         CreateMetadataOut(b_, name, versions, platform, inputs_at, outputs_at, extensions, 32, stages));
    Save("control_reply", Ids(Kind_ControlReply, kFinal), Body_ControlOut, CreateControlOut(b_, true, Params()));
  }

  void WriteRest() {
    Save("credit", Ids(Kind_Credit, 0, 0, 5), Body_NONE, Offset<void>());
    Save("release", Ids(Kind_Release, kFinal | kReleased), Body_NONE, Offset<void>());

    const auto part = b_.CreateVector(std::vector{Inline("token", DType_BYTES, {1}, {2, 0, 0, 0, 'o', 'k'})});
    Save("infer_part", Ids(Kind_InferPart, 0, 0, 3), Body_InferOut,
         CreateInferOut(b_, b_.CreateString("text"), b_.CreateString("1"), part));

    const auto leased = b_.CreateVector(std::vector{Leased("image", 307'200)});
    const auto wanted = b_.CreateVector(std::vector{
        CreateRequestedOutput(b_, b_.CreateString("map"), Place_Lease, CreateLeaseRef(b_, 3, 18, 4, 13'824), Params())});
    const auto lease = CreateInfer(b_, b_.CreateString("qc"), 0, leased, wanted);
    Save("lease_request", Route(9, 50'000, 5, 0, 0, 0, kIdempotent | kReplyInLease, 0, 0, Kind_InferRequest, 3, 0), Body_Infer, lease);

    const TraceContext trace(0x0102030405060708, 0x1112131415161718, 0x2122232425262728, 1, 0, 0, 0);
    const auto tick = b_.CreateVector(std::vector{Inline("x", DType_BF16, {2}, Counting(1, 4))});
    const auto traced = CreateInfer(b_, b_.CreateString("ticks"), 0, tick);
    const auto state = b_.CreateString("vendor=a");
    Save("traced_request", Route(10, 1'000, 0, 0, 0, 0, kStream, 0, 0, Kind_InferRequest, 255, 0), Body_Infer, traced, &trace, state);
  }
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  Writer(arguments[1]).WriteAll();
  return 0;
}
