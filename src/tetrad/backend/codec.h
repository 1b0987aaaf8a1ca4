// SPDX-License-Identifier: Apache-2.0
#pragma once
// What differs between the formats when a block is encoded or decoded: the element, the stored scale, the
// scale arithmetic (all from numerics/). The loops around them are each backend's own.

#include <cstdint>
#include <limits>

#include "tetrad/numerics/fp8.h"
#include "tetrad/numerics/mxfp4.h"
#include "tetrad/numerics/nvfp4.h"
#include "tetrad/ops/quantize.h"

namespace tetrad {

/// A block's scale in its three roles. `Word` is the stored scale in a lane: 32 bits wide whatever is stored.
template <typename Word>
struct ScaleOfBlock {
  Word stored;
  float encode;  //!< multiplies an element before the cast
  float value;   //!< multiplies a decoded element
};

struct Nvfp4Codec {
  nvfp4::TensorScale tensor;

  using Element = E2m1;
  using Stored = std::uint8_t;
  using Word = std::uint32_t;
  static constexpr bool kPacked = true;
  static constexpr int kBlock = nvfp4::kBlock;
  static constexpr Stored kPoison = 0;  // the tensor's amax carries the NaN

  TETRAD_HD ScaleOfBlock<Word> scale(float amax) const {
    return with_value(nvfp4::block_scale(amax, tensor));
  }
  /// The scale that was chosen for a block.
  TETRAD_HD ScaleOfBlock<Word> scale_of_byte(Word byte) const {
    return with_value(nvfp4::scale_of_byte(byte, tensor));
  }
  /// The scale that is stored for a block whose codes were found with the scale of its amax.
  TETRAD_HD ScaleOfBlock<Word> corrected_scale(float amax, Word byte) const {
    return {byte, nvfp4::block_scale(amax, tensor).encode, decode_scale(byte)};
  }
  TETRAD_HD static constexpr float decode_scale(Word stored) { return E4m3::decode(stored); }
  TETRAD_HD float tensor_decode() const { return tensor.decode; }

 private:
  TETRAD_HD static ScaleOfBlock<Word> with_value(const nvfp4::BlockScale& s) {
    return {s.byte, s.encode, decode_scale(s.byte)};
  }
};

struct Mxfp4Codec {
  Scaling scaling = Scaling::standard;

  using Element = E2m1;
  using Stored = std::uint8_t;
  using Word = std::uint32_t;
  static constexpr bool kPacked = true;
  static constexpr int kBlock = mxfp4::kBlock;
  static constexpr Stored kPoison = E8m0::kNan;

  TETRAD_HD ScaleOfBlock<Word> scale(float amax) const {
    const mxfp4::BlockScale s = mxfp4::block_scale(amax, scaling);
    return {s.byte, s.encode, decode_scale(s.byte)};
  }
  TETRAD_HD static constexpr float decode_scale(Word stored) { return E8m0::decode(stored); }
  TETRAD_HD static float tensor_decode() { return 1.0f; }
};

struct Fp8Codec {
  using Element = E4m3;
  using Stored = float;
  using Word = float;
  static constexpr bool kPacked = false;
  static constexpr int kBlock = fp8::kBlock;
  static constexpr Stored kPoison = std::numeric_limits<float>::quiet_NaN();

  TETRAD_HD static ScaleOfBlock<Word> scale(float amax) {
    const fp8::BlockScale s = fp8::block_scale(amax);
    return {s.decode, s.encode, s.decode};
  }
  TETRAD_HD static constexpr float decode_scale(Word stored) { return stored; }
  TETRAD_HD static float tensor_decode() { return 1.0f; }
};

/// Calls body with the codec of a tensor; `amax` is the tensor's.
template <typename Body>
decltype(auto) with_codec(Format format, float amax, Scaling scaling, const Body& body) {
  switch (format) {
    case Format::nvfp4:
      return body(Nvfp4Codec{nvfp4::tensor_scale(amax, scaling)});
    case Format::mxfp4:
      return body(Mxfp4Codec{scaling});
    case Format::fp8:
      break;
  }
  return body(Fp8Codec{});
}

}  // namespace tetrad
