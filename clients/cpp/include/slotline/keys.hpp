// The keys of a client, for a server with CURVE: read from files or given as text, and checked before anything is sent.
//
// The files are ZeroMQ certificates, such as `slotline keys` makes: NAME.pub has a public key, NAME.secret has both of a pair.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <zmq.hpp>

#include "errors.hpp"

namespace slotline {

// The server's public key, and the client's own pair; each 40 characters of Z85.
struct Keys {
  std::string server;
  std::string public_key;
  std::string secret_key;
};

namespace detail {

// Z85 (ZeroMQ RFC 32): five characters for each four bytes, worth at most 2^32 - 1.
inline constexpr std::string_view kZ85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#";
inline constexpr std::size_t kKeyChars = 40;
// A key file has some 200 bytes; whatever is larger is something else.
inline constexpr std::size_t kMaxKeyFileBytes = 4'096;

inline bool is_key(std::string_view text) {
  if (text.size() != kKeyChars) return false;
  std::uint64_t worth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::size_t digit = kZ85.find(text[at]);
    if (digit == std::string_view::npos) return false;
    worth = (at % 5 == 0 ? 0 : worth * 85) + digit;
    if (worth >> 32 != 0) return false;
  }
  return true;
}

struct KeyFile {
  std::map<std::string, std::string> keys;  // by the words before them
  mode_t mode = 0;
};

inline BadKeys unreadable(const std::string& path, int number) {
  std::string reason = std::strerror(number);
  reason[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(reason[0])));
  return BadKeys(path + ": " + reason + ": name a readable key file");
}

// Return the first bytes of a file, one more than a key file may have, and its mode.
inline std::pair<std::string, mode_t> read_some(const std::string& path) {
  // Not blocking: a pipe in its place must not stop the caller.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) throw unreadable(path, errno);
  std::array<char, kMaxKeyFileBytes + 1> buffer;
  struct stat about = {};
  ssize_t got = ::fstat(descriptor, &about);
  std::string text;
  while (got >= 0 && text.size() < buffer.size()) {
    got = ::read(descriptor, buffer.data(), buffer.size() - text.size());
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  const int number = errno;
  ::close(descriptor);
  if (got < 0) throw unreadable(path, number);
  return {std::move(text), about.st_mode};
}

// Return the word and the key of a line such as `    public-key = "..."`; an empty word when it is another line.
inline std::pair<std::string, std::string> key_in(const std::string& line) {
  constexpr const char* kBlank = " \t\r\f\v";
  const std::size_t equals = line.find('=');
  const std::size_t from = line.find_first_not_of(kBlank);
  const std::size_t first = equals == std::string::npos ? equals : line.find_first_not_of(kBlank, equals + 1);
  const std::size_t last = line.find_last_not_of(kBlank);
  if (first == std::string::npos || last <= first || line[first] != '"' || line[last] != '"') return {};
  std::string word = line.substr(from, equals - from);
  word.erase(word.find_last_not_of(kBlank) + 1);
  if (word != "public-key" && word != "secret-key") return {};
  return {word, line.substr(first + 1, last - first - 1)};
}

inline KeyFile read_key_file(const std::string& path) {
  auto [text, mode] = read_some(path);
  KeyFile file{{}, mode};
  if (text.size() > kMaxKeyFileBytes) return file;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (auto [word, key] = key_in(line); !word.empty()) file.keys[word] = key;
  }
  return file;
}

// Return one key of a file. A secret is never shown, not even a damaged one.
inline std::string key_of(const KeyFile& file, const std::string& which, const std::string& path, const std::string& cure) {
  const auto found = file.keys.find(which);
  if (found == file.keys.end()) throw BadKeys(path + ": has no line " + which + ": " + cure);
  if (!is_key(found->second)) {
    throw BadKeys(path + ": its " + which + " is not " + std::to_string(kKeyChars) + " characters of Z85: " + cure);
  }
  return found->second;
}

// Throw BadKeys unless all are keys, and the client's two belong together.
inline void check(const Keys& keys) {
  const std::string size = std::to_string(kKeyChars);
  if (zmq_has("curve") == 0) throw BadKeys("keys: this build of libzmq has no CURVE: install one that has");
  if (!is_key(keys.server)) throw BadKeys("keys: server: expected " + size + " characters of Z85; read_keys() takes them from files");
  if (!is_key(keys.public_key) || !is_key(keys.secret_key)) {
    throw BadKeys("keys: expected public_key and secret_key, each " + size + " characters of Z85");
  }
  std::array<char, kKeyChars + 1> belongs{};
  if (zmq_curve_public(belongs.data(), keys.secret_key.c_str()) != 0 || keys.public_key != belongs.data()) {
    throw BadKeys("keys: the secret key does not belong to the public key: take both from one file");
  }
}

}  // namespace detail

// Return the keys in the server's public key file and in the client's own secret one; throws BadKeys, whose text has the cure.
inline Keys read_keys(const std::string& server_key_file, const std::string& key_file) {
  Keys keys;
  keys.server = detail::key_of(detail::read_key_file(server_key_file), "public-key", server_key_file,
                               "name a .pub file that `slotline keys` made");
  const detail::KeyFile own = detail::read_key_file(key_file);
  const std::string cure = "name the .secret file that `slotline keys` made";
  keys.public_key = detail::key_of(own, "public-key", key_file, cure);
  keys.secret_key = detail::key_of(own, "secret-key", key_file, cure);
  if ((own.mode & S_IRWXO) != 0) {
    throw BadKeys(key_file + ": every user of this machine may read this secret key: chmod 600 " + key_file);
  }
  return keys;
}

}  // namespace slotline
