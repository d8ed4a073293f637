// Arrays in NumPy's npy format, for models that take embeddings.

const KINDS = { "<f4": Float32Array, "<f8": Float64Array, "<i4": Int32Array, "|u1": Uint8Array };

/**
 * The rows of an array (n, m) or (m,).
 * @param {ArrayBuffer} buffer
 * @returns {Float32Array[]}
 */
export function readNpy(buffer) {
  const bytes = new Uint8Array(buffer);
  const view = new DataView(buffer);
  const magic = "\x93NUMPY";
  if (bytes.length < 12 || [...magic].some((c, i) => bytes[i] !== c.charCodeAt(0))) {
    throw new Error("expected an array in npy format; write it with numpy.save(file, X)");
  }
  const long = bytes[6] > 1;
  const start = long ? 12 : 10;
  const end = start + (long ? view.getUint32(8, true) : view.getUint16(8, true));
  const header = new TextDecoder().decode(bytes.subarray(start, end));
  const kind = /'descr': '([^']+)'/.exec(header)?.[1];
  const shape = /'shape': \(([^)]*)\)/.exec(header)?.[1].split(",").filter((s) => s.trim()).map(Number);
  if (!KINDS[kind] || header.includes("'fortran_order': True") || ![1, 2].includes(shape?.length)) {
    throw new Error(`expected rows of numbers; got an array of ${kind} with shape (${shape}); save `
      + "np.ascontiguousarray(X, dtype=np.float32)");
  }
  const [n, width] = shape.length === 2 ? shape : [1, shape[0]];
  const values = new KINDS[kind](buffer.slice(end));
  if (values.length !== n * width) throw new Error("the array is cut; save it again");
  return Array.from({ length: n }, (_, i) => Float32Array.from(values.subarray(i * width, (i + 1) * width)));
}
