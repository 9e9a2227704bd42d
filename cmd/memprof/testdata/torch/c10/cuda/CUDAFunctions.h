// A stand-in for torch's header.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

namespace c10::cuda {
DeviceIndex device_count();
}
