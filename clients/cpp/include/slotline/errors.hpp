// What can go wrong for a caller, as exceptions: one class per thing that a caller does about it.
#pragma once

#include <slotline/infer_generated.h>

#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

namespace slotline {

// Anything that a Client throws about the server, the connection or a request.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Nobody answered at the endpoint in time.
class ServerUnreachable : public Error {
 public:
  using Error::Error;
};

// The connection, or that life of the server, ended with the call in flight: it may have run or not. Sending an idempotent
// request again is safe; the next call opens a new connection.
class ConnectionLost : public Error {
 public:
  using Error::Error;
};

// A key that the caller gave is missing, damaged, or not readable; nothing was sent.
class BadKeys : public Error {
 public:
  using Error::Error;
};

// What the server sent for this call is no valid reply.
class BadReply : public Error {
 public:
  using Error::Error;
};

// What the wire says of a call without a result.
struct Reason {
  Code code = Code::None;            // stable; its hundred says whose fault it is
  std::string message;               // one sentence for people
  std::string field;                 // the tensor, parameter or header field at fault, "" when there is none
  std::uint64_t retry_after_us = 0;  // when to try again; 0 unless the code is 2xx
  std::string stage;                 // where it happened, "" when the server did not say
};

// One call got no result.
class CallError : public Error {
 public:
  explicit CallError(Reason reason)
      : Error(std::string(EnumNameCode(reason.code)) + " (" + std::to_string(static_cast<int>(reason.code)) +
              "): " + reason.message),
        reason_(std::move(reason)) {}

  Code code() const noexcept { return reason_.code; }
  const std::string& message() const noexcept { return reason_.message; }
  const std::string& field() const noexcept { return reason_.field; }
  std::uint64_t retry_after_us() const noexcept { return reason_.retry_after_us; }
  const std::string& stage() const noexcept { return reason_.stage; }

 private:
  Reason reason_;
};

// The request was not taken: it is wrong (1xx), or comes at a bad time (2xx, a Busy).
class RequestRefused : public CallError {
 public:
  using CallError::CallError;
};

// The server does not take this client's key, or is not the one whose key was given: see to the keys, then try again. Thrown when
// connecting, and by calls when the key was taken off the server's list meanwhile.
class Unauthorized : public RequestRefused {
 public:
  using RequestRefused::RequestRefused;
};

// Not now (2xx): try again after retry_after_us.
class Busy : public RequestRefused {
 public:
  using RequestRefused::RequestRefused;
};

// The server took the request and failed at it (3xx).
class RequestFailed : public CallError {
 public:
  using CallError::CallError;
};

// The budget is used up; a reply that comes later is ignored.
class DeadlineExceeded : public CallError {
 public:
  using CallError::CallError;
};

// The call was cancelled, or its client closed.
class Cancelled : public CallError {
 public:
  using CallError::CallError;
};

// A newer request of the same key took its place.
class Superseded : public CallError {
 public:
  using CallError::CallError;
};

namespace detail {

// Return the code of a number; an unknown one of a newer server becomes the plainest of its hundred.
inline Code known_code(std::uint16_t number) {
  const auto code = static_cast<Code>(number);
  if (*EnumNameCode(code) != '\0') return code;
  switch (number / 100) {
    case 1: return Code::NotSupported;
    case 2: return Code::Busy;
    case 4: return Code::Cancelled;
    default: return Code::Internal;
  }
}

// Return the exception that an error reply stands for.
inline std::exception_ptr error_of(Reason reason) {
  switch (reason.code) {
    case Code::Unauthorized: return std::make_exception_ptr(Unauthorized(std::move(reason)));
    case Code::DeadlineExceeded: return std::make_exception_ptr(DeadlineExceeded(std::move(reason)));
    case Code::Cancelled: return std::make_exception_ptr(Cancelled(std::move(reason)));
    case Code::Superseded: return std::make_exception_ptr(Superseded(std::move(reason)));
    default: break;
  }
  if (reason.code >= Code::Internal) return std::make_exception_ptr(RequestFailed(std::move(reason)));
  if (reason.code >= Code::Busy) return std::make_exception_ptr(Busy(std::move(reason)));
  return std::make_exception_ptr(RequestRefused(std::move(reason)));
}

// Return the error of a call that found no server within its time; `why` is how the last connection ended.
inline ServerUnreachable unreachable(const std::string& endpoint, const std::string& within, const std::string& why) {
  const std::string last = why.empty() ? "" : ", last: " + why;
  return ServerUnreachable(endpoint + ": no server answered within " + within + last +
                           "; start one there with `slotline serve CONFIG`, or name another endpoint");
}

// Return the error of a client whose keys, or the server's, are not the right ones.
inline Unauthorized unauthorized(const std::string& endpoint, const std::string& reason) {
  return Unauthorized({Code::Unauthorized, endpoint + ": " + reason, "", 0, ""});
}

}  // namespace detail
}  // namespace slotline
