/** Arrays that the yard sends in base64. */

/** @param {string} text @returns {ArrayBuffer} */
function decode(text) {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let place = 0; place < characters.length; place++) bytes[place] = characters.charCodeAt(place);
  return bytes.buffer;
}

export const decodeFloats = (text) => new Float32Array(decode(text));
export const decodeDoubles = (text) => new Float64Array(decode(text));
export const decodeCounts = (text) => new Uint32Array(decode(text));
export const decodeBytes = (text) => new Uint8Array(decode(text));
