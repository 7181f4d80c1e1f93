// The Slotline client for C++17: include this. One Client per thread; see client.hpp.
#pragma once

#include "client.hpp"
#include "errors.hpp"
#include "keys.hpp"
#include "result.hpp"
#include "tensors.hpp"
