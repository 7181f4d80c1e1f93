// Reads headers from stdin (u32 length and the bytes, again and again) and prints one line for each: "-" when the C++ verifier
// refuses it, else all its fields. A scalar that is 0 is not printed, so that absent and default look the same.
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "flatbuffers/minireflect.h"
#include "infer_generated.h"

static_assert(sizeof(slotline::Route) == 56, "Route is frozen");
static_assert(sizeof(slotline::TraceContext) == 32, "TraceContext is frozen");
static_assert(sizeof(slotline::StageTime) == 12, "StageTime is frozen");

namespace {

class Printer : public flatbuffers::IterationVisitor {
 public:
  std::string text;

  void StartSequence() override { Open('{'); }
  void EndSequence() override { Close('}'); }
  void StartVector() override { Open('['); }
  void EndVector() override { Close(']'); }
  void Field(size_t, size_t, flatbuffers::ElementaryType, bool, const flatbuffers::TypeTable*, const char* name,
             const uint8_t*) override {
    name_ = name;
  }
  void UType(uint8_t value, const char*) override { Number(value); }
  void Bool(bool value) override { Number(value); }
  void UChar(uint8_t value, const char*) override { Number(value); }
  void UShort(uint16_t value, const char*) override { Number(value); }
  void UInt(uint32_t value, const char*) override { Number(value); }
  void ULong(uint64_t value) override { Number(value); }
  void Long(int64_t value) override { Scalar(std::to_string(value), value == 0); }
  void Double(double value) override {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    Number(bits);
  }
  void String(const flatbuffers::String* value) override {
    std::string hex = "\"";
    char two[3];
    for (size_t i = 0; i < value->size(); i++) {
      snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(value->data()[i]));
      hex += two;
    }
    Scalar(hex + "\"", false);
  }

 private:
  std::string nesting_;
  std::string name_;

  bool InVector() const { return !nesting_.empty() && nesting_.back() == '['; }
  void Name() {
    if (!InVector() && !nesting_.empty()) text += name_ + "=";
  }
  void Open(char bracket) {
    Name();
    nesting_ += bracket;
    text += bracket;
  }
  void Close(char bracket) {
    nesting_.pop_back();
    text += bracket;
    text += ' ';
  }
  void Number(uint64_t value) { Scalar(std::to_string(value), value == 0); }
  void Scalar(const std::string& value, bool is_zero) {
    if (is_zero && !InVector()) return;
    Name();
    text += value + " ";
  }
};

}  // namespace

int main() {
  uint32_t size = 0;
  while (fread(&size, sizeof size, 1, stdin) == 1) {
    std::vector<uint8_t> header(size);
    if (size != 0 && fread(header.data(), 1, size, stdin) != size) return 1;
    flatbuffers::Verifier verifier(header.data(), size);
    if (size < 12 || !slotline::VerifyMessageBuffer(verifier)) {
      puts("-");
      continue;
    }
    Printer printer;
    auto root = flatbuffers::GetRoot<uint8_t>(header.data());
    flatbuffers::IterateObject(root, slotline::MessageTypeTable(), &printer);
    puts(printer.text.c_str());
  }
  return 0;
}
