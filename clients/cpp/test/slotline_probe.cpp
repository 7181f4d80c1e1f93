// A client under orders, for tests: one command a line on stdin, one JSON object a line on stdout. The Node client's probe takes
// the same commands.
//
//   connect ENDPOINT TIMEOUT_MS
//   infer MODEL OPTIONS TENSOR...         one call, waited for
//   begin COUNT MODEL OPTIONS TENSOR...   as many calls, not waited for
//   end                                   wait for those
//   many COUNT MODEL OPTIONS TENSOR...    as many calls by infer_many
//
// OPTIONS: "-", or name=value joined by ";". TENSOR: name:DTYPE:SHAPE:CONTENT; SHAPE: "-" for a scalar, or dims joined by "x";
// CONTENT: hex, elements joined by "," for BYTES, or @ and the hex of a file's path.

#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <slotline/slotline.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace {

std::string hex(const std::uint8_t* bytes, std::size_t size) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (std::size_t at = 0; at < size; ++at) {
    text += digits[bytes[at] >> 4];
    text += digits[bytes[at] & 15];
  }
  return text;
}

std::vector<std::uint8_t> unhex(const std::string& text) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t at = 0; at + 1 < text.size(); at += 2)
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(text.substr(at, 2), nullptr, 16)));
  return bytes;
}

std::string quoted(const std::string& text) {
  std::string json = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') json += '\\';
    json += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return json + '"';
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

slotline::DType dtype_named(const std::string& name) {
  for (const slotline::DType dtype : slotline::EnumValuesDType()) {
    if (name == slotline::EnumNameDType(dtype)) return dtype;
  }
  throw std::runtime_error("no datatype " + name);
}

slotline::Input input_of(const std::string& text) {
  const auto parts = split(text, ':');
  const std::string content = parts.size() > 3 ? parts[3] : "";
  slotline::Shape shape;
  if (parts.at(2) != "-") {
    for (const std::string& dim : split(parts[2], 'x')) shape.push_back(std::stoll(dim));
  }
  const slotline::DType dtype = dtype_named(parts.at(1));
  if (dtype == slotline::DType::BYTES) {
    std::vector<std::string> elements;
    for (const std::string& element : split(content, ',')) {
      const auto bytes = unhex(element);
      elements.emplace_back(bytes.begin(), bytes.end());
    }
    return slotline::strings(parts[0], shape, elements);
  }
  if (content.rfind('@', 0) != 0) return slotline::tensor(parts[0], shape, unhex(content), dtype);
  const auto path = unhex(content.substr(1));
  std::ifstream file(std::string(path.begin(), path.end()), std::ios::binary);
  if (!file) throw std::runtime_error("cannot read the file of " + parts[0]);
  return slotline::tensor(parts[0], shape, std::vector<std::uint8_t>(std::istreambuf_iterator<char>(file), {}), dtype);
}

struct Request {
  std::string model;
  slotline::Options options;
  std::string on_failure;
  std::vector<slotline::Input> inputs;
};

Request request_of(std::istringstream& words) {
  Request request;
  std::string options;
  words >> request.model >> options;
  for (const std::string& option : split(options == "-" ? "" : options, ';')) {
    const auto at = option.find('=');
    const std::string name = option.substr(0, at);
    const std::string value = option.substr(at + 1);
    if (name == "budget_us") request.options.budget_us = std::stoull(value);
    else if (name == "finite") request.options.finite = true;
    else if (name == "copy") request.options.copy = value != "0";
    else if (name == "output") request.options.outputs.push_back(value);
    else if (name == "on_failure") request.on_failure = value;
    else throw std::runtime_error("no option " + name);
  }
  for (std::string tensor; words >> tensor;) request.inputs.push_back(input_of(tensor));
  return request;
}

std::string json_of(const slotline::Result& result) {
  std::string json;
  for (const slotline::Output& output : result.outputs()) {
    json += (json.empty() ? "" : ", ") + quoted(std::string(output.name)) +
            ": {\"dtype\": " + quoted(slotline::EnumNameDType(output.dtype));
    std::string shape;
    for (const std::int64_t dim : output.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(dim);
    json += ", \"shape\": [" + shape + "], \"hex\": " + quoted(hex(output.bytes.data(), output.bytes.size()));
    if (output.dtype == slotline::DType::BYTES) {
      std::string elements;
      for (const std::string_view element : output.elements()) {
        elements +=
            (elements.empty() ? "" : ", ") + quoted(hex(reinterpret_cast<const std::uint8_t*>(element.data()), element.size()));
      }
      json += ", \"elements\": [" + elements + "]";
    }
    json += "}";
  }
  return "{\"ok\": true, \"outputs\": {" + json + "}}";
}

std::string name_of(const std::exception& error) {
  const std::vector<std::pair<std::string, bool>> kinds = {
      {"Busy", dynamic_cast<const slotline::Busy*>(&error) != nullptr},
      {"RequestRefused", dynamic_cast<const slotline::RequestRefused*>(&error) != nullptr},
      {"RequestFailed", dynamic_cast<const slotline::RequestFailed*>(&error) != nullptr},
      {"DeadlineExceeded", dynamic_cast<const slotline::DeadlineExceeded*>(&error) != nullptr},
      {"Cancelled", dynamic_cast<const slotline::Cancelled*>(&error) != nullptr},
      {"Superseded", dynamic_cast<const slotline::Superseded*>(&error) != nullptr},
      {"ConnectionLost", dynamic_cast<const slotline::ConnectionLost*>(&error) != nullptr},
      {"ServerUnreachable", dynamic_cast<const slotline::ServerUnreachable*>(&error) != nullptr},
      {"BadReply", dynamic_cast<const slotline::BadReply*>(&error) != nullptr},
  };
  for (const auto& [name, is] : kinds) {
    if (is) return name;
  }
  return "exception";
}

std::string json_of(const std::exception& error) {
  std::string json = "{\"ok\": false, \"error\": " + quoted(name_of(error)) + ", \"message\": " + quoted(error.what());
  if (const auto* call = dynamic_cast<const slotline::CallError*>(&error)) {
    json += ", \"code\": " + std::to_string(static_cast<int>(call->code())) + ", \"field\": " + quoted(call->field()) +
            ", \"retry_after_us\": " + std::to_string(call->retry_after_us());
  }
  return json + "}";
}

// Return how many of the calls ended in which way.
std::string count(const std::vector<slotline::Pending>& calls) {
  std::map<std::string, int> counts;
  for (const slotline::Pending& call : calls) {
    try {
      call.result();
      ++counts["ok"];
    } catch (const std::exception& error) {
      ++counts[name_of(error)];
    }
  }
  std::string json;
  for (const auto& [name, number] : counts) json += (json.empty() ? "" : ", ") + quoted(name) + ": " + std::to_string(number);
  return "{" + json + "}";
}

class Probe {
 public:
  std::string run(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "connect") return connect(words);
    if (command == "infer") return infer(request_of(words));
    if (command == "end") return count(std::exchange(begun_, {}));
    std::size_t number = 0;
    words >> number;
    const Request request = request_of(words);
    if (command == "many") return count(client_->infer_many(request.model, std::vector(number, request.inputs), request.options));
    for (std::size_t index = 0; index < number; ++index)
      begun_.push_back(client_->submit(request.model, request.inputs, request.options));
    return "{\"begun\": " + std::to_string(begun_.size()) + "}";
  }

 private:
  std::string connect(std::istringstream& words) {
    std::string endpoint;
    int timeout_ms = 0;
    words >> endpoint >> timeout_ms;
    client_.reset();
    client_ = std::make_unique<slotline::Client>(endpoint, std::chrono::milliseconds{timeout_ms});
    return "{\"epoch\": " + quoted(std::to_string(client_->epoch())) + "}";
  }

  std::string infer(const Request& request) {
    if (request.on_failure.empty()) return json_of(client_->infer(request.model, request.inputs, request.options));
    const auto read = [](const slotline::Result& result) { return std::string(result["verdict"].elements().at(0)); };
    return "{\"value\": " + quoted(client_->infer_or(request.on_failure, request.model, request.inputs, read, request.options)) +
           "}";
  }

  std::unique_ptr<slotline::Client> client_;
  std::vector<slotline::Pending> begun_;
};

}  // namespace

int main() {
  Probe probe;
  for (std::string line; std::getline(std::cin, line);) {
    try {
      std::cout << probe.run(line) << std::endl;
    } catch (const std::exception& error) {
      std::cout << json_of(error) << std::endl;
    }
  }
  return 0;
}
