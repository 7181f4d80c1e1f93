// Leases against a real server with the lanes of tests/e2e/lease_stages.py: says "ok STEP" for each thing that holds, and ends with
// 1 at the first that does not.
//
//   lease_probe ENDPOINT PLACE    PLACE has the files by which the lane `slow` says that it reads, and is told to go on

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <numeric>
#include <slotline/lease.hpp>
#include <slotline/slotline.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using slotline::DType;
using slotline::Shape;

constexpr std::size_t kTile = 1000;
constexpr std::size_t kBytes = 8 * kTile;

void check(bool holds, const std::string& step) {
  std::cout << (holds ? "ok " : "wrong ") << step << std::endl;
  if (!holds) std::exit(1);
}

template <class Exception>
bool throws(const std::function<void()>& act) {
  try {
    act();
  } catch (const Exception&) {
    return true;
  }
  return false;
}

void until(const std::function<bool()>& holds, const std::string& what) {
  for (int turn = 0; turn < 30'000; ++turn) {
    if (holds()) return;
    std::this_thread::sleep_for(1ms);
  }
  check(false, what);
}

std::vector<std::uint8_t> picture(std::uint8_t first) {
  std::vector<std::uint8_t> values(kBytes);
  for (std::size_t at = 0; at < values.size(); ++at) values[at] = static_cast<std::uint8_t>(first + at * 7);
  return values;
}

std::vector<std::uint8_t> bytes_of(const slotline::Result& result, const std::string& name) {
  const slotline::Bytes bytes = result[name].bytes;
  return {bytes.begin(), bytes.end()};
}

void write(const slotline::LeaseFrame& frame, const std::vector<std::uint8_t>& values) {
  std::memcpy(frame.data(), values.data(), values.size());
}

void read_in_place(slotline::Client& client, slotline::Lease& lease) {
  for (std::uint8_t first = 0; first < 10; ++first) {
    const auto values = picture(first);
    const slotline::LeaseFrame frame = lease.frame();
    write(frame, values);
    const auto sent = client.infer("tiles", {slotline::tensor("image", {kBytes}, values)});
    const auto read = client.infer("tiles", {frame.input("image", DType::UINT8, {8, kTile})});
    if (bytes_of(sent, "sums") != bytes_of(read, "sums") || bytes_of(sent, "turned") != bytes_of(read, "turned") || frame.is_busy())
      check(false, "answers are those of ordinary sends");
  }
  check(true, "answers are those of ordinary sends");
}

void answer_in_place(slotline::Client& client, slotline::Lease& lease) {
  const auto values = picture(3);
  const slotline::LeaseFrame source = lease.frame();
  slotline::LeaseFrame target = lease.frame();
  write(source, values);
  slotline::Options options;
  options.outputs = {"turned"};
  options.output_frames = {{"turned", target.place()}};
  const auto result = client.infer("tiles", {source.input("image", DType::UINT8, {kBytes})}, options);
  check(result["turned"].bytes.data() == target.data() && std::equal(values.rbegin(), values.rend(), target.data()),
        "an output lies in its frame");
}

void stay_busy(slotline::Client& client, slotline::Lease& lease, const std::filesystem::path& place) {
  slotline::LeaseFrame frame = lease.frame();
  write(frame, picture(1));
  slotline::Options options;
  options.budget_us = 3'000'000;
  const auto call = client.submit("slow", {frame.input("image", DType::UINT8, {kBytes})}, options);
  check(frame.is_busy() && throws<std::logic_error>([&] { frame.data(); }), "a busy frame is not given out for writing");
  until([&] { return std::filesystem::exists(place / "reading"); }, "the stage reads");
  check(throws<slotline::DeadlineExceeded>([&] { call.result(); }) && frame.is_busy(), "it is busy when its call ended early");
  const slotline::LeaseFrame second = lease.frame();
  const slotline::LeaseFrame third = lease.frame();
  check(throws<std::logic_error>([&] { lease.frame(); }), "with all frames open nobody waits");
  { const slotline::LeaseFrame closed = std::move(frame); }
  check(throws<slotline::DeadlineExceeded>([&] { lease.frame(50ms); }), "a frame that is read is waited for in vain");
  std::ofstream(place / "go").put('x');
  const slotline::LeaseFrame again = lease.frame();
  check(!again.is_busy(), "it comes back when its stage has done with it");
}

void run_out(slotline::Client& client) {
  const slotline::Lease last(client);
  check(last.frames() == 3 && throws<slotline::Busy>([&] { slotline::Lease more(client); }), "leases run out");
}

void wish_too_much(slotline::Client& client) {
  check(throws<slotline::RequestRefused>([&] { slotline::Lease more(client, 1 << 30); }), "larger ones than there are are refused");
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  slotline::Client client(arguments[1], 20s);
  std::vector<slotline::Pending> calls;
  {
    slotline::Lease lease(client);
    read_in_place(client, lease);
    answer_in_place(client, lease);
    run_out(client);
    wish_too_much(client);
    stay_busy(client, lease, arguments[2]);
    for (int turn = 0; turn < 20; ++turn) {
      const slotline::LeaseFrame frame = lease.frame();
      write(frame, picture(2));
      calls.push_back(client.submit("tiles", {frame.input("image", DType::UINT8, {kBytes})}));
    }
  }
  const auto last = slotline::tensor("image", {kBytes}, picture(2));
  const auto expected = bytes_of(client.infer("tiles", {last}), "sums");
  bool are_right = true;
  for (const slotline::Pending& call : calls) are_right = are_right && bytes_of(call.result(), "sums") == expected;
  check(are_right, "frames are closed and taken again while calls are in flight");
  return 0;
}
