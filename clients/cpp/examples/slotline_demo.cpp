// The demo's two jobs by the C++ client: judge the photos of a directory, and score a file of ticks one at a time and many at
// once.
//
//   slotline_demo ENDPOINT PARTS_DIR TICKS_FILE [ROWS_FILE]
//
// TICKS_FILE holds rows of 67 float32. Prints one JSON object; outputs are hex of their bytes, so that two clients can be
// compared. ROWS_FILE gets one line of hex per tick: first those sent one at a time, then the same ticks packed.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <slotline/slotline.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr std::size_t kFeatures = 67;
using Microseconds = std::chrono::duration<double, std::micro>;
using Clock = std::chrono::steady_clock;

std::string hex(slotline::Bytes bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::uint8_t byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::vector<std::uint8_t> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

// Return the outputs of one reply as hex, in the order of their names.
std::string hex_of(const slotline::Result& result) {
  std::vector<const slotline::Output*> outputs;
  for (const slotline::Output& output : result.outputs()) outputs.push_back(&output);
  std::sort(outputs.begin(), outputs.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  std::string line;
  for (const slotline::Output* output : outputs) line += hex(output->bytes);
  return line;
}

// FNV-1a, 64 bits: enough to see that two runs gave the same, and the same few lines in every language.
std::string digest(const std::vector<std::string>& lines) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::string& line : lines) {
    for (const char c : line) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3;
  }
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string judge_parts(slotline::Client& client, const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".png") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<slotline::Client::Inputs> requests;
  for (const auto& file : files) requests.push_back({slotline::encoded("image", read_file(file), "image/png")});
  const auto calls = client.infer_many("qc", requests);
  std::ostringstream json;
  for (std::size_t index = 0; index < calls.size(); ++index) {
    const slotline::Result& result = calls[index].result();
    const slotline::Output& boxes = result["boxes"];
    json << (index == 0 ? "" : ", ") << "{\"file\": \"" << files[index].filename().string() << "\", \"verdict\": \""
         << result["verdict"].elements().at(0) << "\", \"score\": \"" << hex(result["score"].bytes) << "\", \"boxes_shape\": ["
         << boxes.shape.at(0) << ", " << boxes.shape.at(1) << "], \"boxes\": \"" << hex(boxes.bytes) << "\"}";
  }
  return json.str();
}

std::string stream_ticks(slotline::Client& client, const std::vector<std::uint8_t>& ticks, const char* rows_file) {
  constexpr std::size_t row_bytes = kFeatures * sizeof(float);
  std::vector<slotline::Client::Inputs> requests;
  for (std::size_t at = 0; at + row_bytes <= ticks.size(); at += row_bytes) {
    requests.push_back({slotline::borrowed("features", slotline::DType::FP32, {1, kFeatures}, {ticks.data() + at, row_bytes})});
  }
  std::vector<std::string> alone;
  std::vector<double> waits_us;
  for (const auto& request : requests) {
    const auto began = Clock::now();
    const slotline::Result result = client.infer("ticks", request);
    waits_us.push_back(Microseconds(Clock::now() - began).count());
    alone.push_back(hex_of(result));
  }
  const auto began = Clock::now();
  const auto calls = client.infer_many("ticks", requests);
  const double seconds = Microseconds(Clock::now() - began).count() / 1e6;
  std::vector<std::string> packed;
  for (const auto& call : calls) packed.push_back(hex_of(call.result()));
  if (rows_file != nullptr) {
    std::ofstream file(rows_file);
    for (const auto* lines : {&alone, &packed}) {
      for (const std::string& line : *lines) file << line << '\n';
    }
  }
  std::sort(waits_us.begin(), waits_us.end());
  const auto percentile = [&](std::size_t percent) {
    return waits_us.empty() ? 0 : waits_us[(waits_us.size() - 1) * percent / 100];
  };
  std::ostringstream json;
  json << "{\"count\": " << requests.size() << ", \"digest\": \"" << digest(alone) << "\", \"packed_digest\": \""
       << digest(packed) << "\", \"p50_us\": " << percentile(50) << ", \"p99_us\": " << percentile(99)
       << ", \"packed_per_s\": " << static_cast<long>(static_cast<double>(requests.size()) / seconds) << "}";
  return json.str();
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    std::cerr << "usage: slotline_demo ENDPOINT PARTS_DIR TICKS_FILE [ROWS_FILE]\n";
    return 2;
  }
  try {
    slotline::Client client(arguments[1], std::chrono::seconds{30});
    const std::string parts = judge_parts(client, arguments[2]);
    const std::string ticks = stream_ticks(client, read_file(arguments[3]), count > 4 ? arguments[4] : nullptr);
    std::cout << "{\"qc\": [" << parts << "], \"ticks\": " << ticks << "}\n";
  } catch (const std::exception& error) {
    std::cerr << "slotline_demo: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
