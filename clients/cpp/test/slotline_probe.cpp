// A client under orders, for tests: one command a line on stdin, one JSON object a line on stdout. The Node client's probe takes
// the same commands.
//
//   connect ENDPOINT TIMEOUT_MS [SETTING...]   anew; SETTING: connect=0, server_key=FILE and key_file=FILE (hex of the paths)
//   infer MODEL OPTIONS TENSOR...              one call, waited for
//   begin COUNT MODEL OPTIONS TENSOR...        as many calls, not waited for
//   cancel                                     those
//   end                                        wait for those, and count how they ended
//   outcomes                                   wait for those, and tell what came of each
//   many COUNT MODEL OPTIONS TENSOR...         as many calls by infer_many
//   health, ready [MODEL]                      questions
//   close                                      end the client
//
// OPTIONS: "-", or name=value joined by ";". TENSOR: name:DTYPE:SHAPE:CONTENT[:LAYOUT]; SHAPE: "-" for a scalar, or dims joined by
// "x"; CONTENT: hex, elements joined by "," for BYTES ("-" is an empty one), or @ and the hex of a file's path; LAYOUT, where values
// do not lie one behind the other in CONTENT: FIRST/STRIDES/ORDER, in bytes, STRIDES joined by "x", ORDER "little" or "big".

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

slotline::KeyPolicy policy_named(const std::string& name) {
  for (const slotline::KeyPolicy policy : slotline::EnumValuesKeyPolicy()) {
    if (name == slotline::EnumNameKeyPolicy(policy)) return policy;
  }
  throw std::runtime_error("no key policy " + name);
}

slotline::Input strided_of(const std::string& name, slotline::DType dtype, const slotline::Shape& shape,
                           const std::vector<std::uint8_t>& memory, const std::string& layout) {
  const auto parts = split(layout, '/');
  std::vector<std::ptrdiff_t> strides;
  for (const std::string& stride : split(parts.at(1), 'x')) strides.push_back(std::stoll(stride));
  return slotline::strided(name, dtype, shape, memory.data() + std::stoull(parts[0]), strides, parts.at(2) == "big");
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
      const auto bytes = unhex(element == "-" ? "" : element);
      elements.emplace_back(bytes.begin(), bytes.end());
    }
    return slotline::strings(parts[0], shape, elements);
  }
  if (parts.size() > 4) return strided_of(parts[0], dtype, shape, unhex(content), parts[4]);
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

void set(slotline::Options& options, const std::string& name, const std::string& value) {
  const auto number = [&] { return std::stoull(value); };
  if (name == "budget_us") options.budget_us = number();
  else if (name == "finite") options.finite = true;
  else if (name == "copy") options.copy = value != "0";
  else if (name == "idempotent") options.idempotent = value != "0";
  else if (name == "checksum") options.checksum = true;
  else if (name == "output") options.outputs.push_back(value);
  else if (name == "version") options.version = value;
  else if (name == "client_request_id") options.client_request_id = value;
  else if (name == "key") options.key = number();
  else if (name == "born_us") options.born_us = number();
  else if (name == "priority") options.priority = static_cast<std::uint8_t>(number());
  else if (name == "latest_n") options.latest_n = static_cast<std::uint16_t>(number());
  else if (name == "key_policy") options.key_policy = policy_named(value);
  else if (name != "on_failure") throw std::runtime_error("no option " + name);
}

Request request_of(std::istringstream& words) {
  Request request;
  std::string options;
  words >> request.model >> options;
  for (const std::string& option : split(options == "-" ? "" : options, ';')) {
    const auto at = option.find('=');
    const std::string name = option.substr(0, at);
    const std::string value = option.substr(at + 1);
    set(request.options, name, value);
    if (name == "on_failure") request.on_failure = value;
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
  return "{\"ok\": true, \"retries\": " + std::to_string(result.retries()) + ", \"outputs\": {" + json + "}}";
}

std::string name_of(const std::exception& error) {
  const std::vector<std::pair<std::string, bool>> kinds = {
      {"Unauthorized", dynamic_cast<const slotline::Unauthorized*>(&error) != nullptr},
      {"BadKeys", dynamic_cast<const slotline::BadKeys*>(&error) != nullptr},
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
            ", \"stage\": " + quoted(call->stage()) + ", \"retry_after_us\": " + std::to_string(call->retry_after_us());
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

// Return what came of each call.
std::string tell(const std::vector<slotline::Pending>& calls) {
  std::string json;
  for (const slotline::Pending& call : calls) {
    std::string outcome;
    try {
      outcome = json_of(call.result());
    } catch (const std::exception& error) {
      outcome = json_of(error);
    }
    json += (json.empty() ? "" : ", ") + outcome;
  }
  return "{\"outcomes\": [" + json + "]}";
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
    if (command == "outcomes") return tell(std::exchange(begun_, {}));
    if (command == "cancel") return cancel();
    if (command == "close") return close();
    if (command == "health") return "{\"state\": " + quoted(client_->health().state) + "}";
    if (command == "ready") return ready(words);
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
    slotline::Settings settings;
    settings.timeout = std::chrono::milliseconds{timeout_ms};
    std::map<std::string, std::string> files;
    for (std::string setting; words >> setting;) {
      const auto at = setting.find('=');
      const auto value = unhex(setting.substr(at + 1));
      if (setting == "connect=0") settings.connect = false;
      else files[setting.substr(0, at)] = std::string(value.begin(), value.end());
    }
    if (!files.empty()) settings.keys = slotline::read_keys(files["server_key"], files["key_file"]);
    client_ = std::make_unique<slotline::Client>(endpoint, settings);
    return "{\"epoch\": " + quoted(std::to_string(client_->epoch())) + "}";
  }

  std::string cancel() {
    int cancelled = 0;
    for (const slotline::Pending& call : begun_) cancelled += client_->cancel(call) ? 1 : 0;
    return "{\"cancelled\": " + std::to_string(cancelled) + "}";
  }

  std::string close() {
    client_.reset();
    return "{\"closed\": true}";
  }

  std::string ready(std::istringstream& words) {
    std::string model;
    words >> model;
    return std::string("{\"ready\": ") + (client_->ready(model) ? "true" : "false") + "}";
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
