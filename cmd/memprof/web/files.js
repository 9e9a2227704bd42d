// The files that memprof reads and writes in a page: a tree in memory behind the functions of Node's fs, which Go calls there.
// What was dropped stays a Blob and is read in blocks, so that a file larger than memory can be read.

const blockBytes = 4 << 20;
const blocksKept = 16; // of a Blob

const fault = (code) => Object.assign(new Error(code), { code });

class Files {
  constructor() {
    this.root = { entries: new Map(), number: 1, changed: Date.now() };
    this.numbers = 1;
    this.folder = ''; // the working directory
    this.opened = new Map();
    this.lastOpened = 2;
    this.printed = { 1: [], 2: [] }; // bytes on stdout and stderr
    this.onRead = () => {}; // gets the name of a Blob, the bytes that were read of it, and its size
  }

  // add puts a Blob below the root, and makes the folders above it.
  add(path, blob) {
    const names = path.split('/');
    const name = names.pop();
    this.put(this.make(names), name, { name, blob, blocks: new Map() });
  }

  // make makes the folders of a path, and returns the last one.
  make(names) {
    let folder = this.root;
    for (const name of names) {
      folder = folder.entries.get(name) || this.put(folder, name, { entries: new Map() });
    }
    return folder;
  }

  put(folder, name, node) {
    Object.assign(node, { number: ++this.numbers, changed: Date.now() });
    folder.entries.set(name, node);
    return node;
  }

  // at finds the folder that a path leads to, the name in it, and the node of that name, undefined where there is none.
  at(path) {
    const above = [];
    let folder = this.root, name = '.', node = this.root;
    for (const part of (path.startsWith('/') ? path : this.folder + '/' + path).split('/')) {
      if (part === '' || part === '.') continue;
      if (!node) throw fault('ENOENT');
      if (!node.entries) throw fault('ENOTDIR');
      if (part === '..') {
        node = above.pop() || this.root;
        continue;
      }
      above.push(node);
      [folder, name, node] = [node, part, node.entries.get(part)];
    }
    return { folder, name, node };
  }

  there(path) {
    const { node } = this.at(path);
    if (!node) throw fault('ENOENT');
    return node;
  }

  file(number) {
    const file = this.opened.get(number);
    if (!file) throw fault('EBADF');
    return file;
  }

  text(number) {
    return new Blob(this.printed[number]).text();
  }

  read(node, at, into) {
    if (node.entries) throw fault('EISDIR');
    if (!node.blob) {
      const bytes = node.data.subarray(at, Math.min(node.size, at + into.length));
      into.set(bytes);
      return bytes.length;
    }
    if (at >= node.blob.size) return 0;
    const number = Math.floor(at / blockBytes);
    let block = node.blocks.get(number);
    if (!block) {
      const slice = node.blob.slice(number * blockBytes, (number + 1) * blockBytes);
      block = new Uint8Array(new FileReaderSync().readAsArrayBuffer(slice));
      node.blocks.set(number, block);
      if (node.blocks.size > blocksKept) node.blocks.delete(node.blocks.keys().next().value);
      this.onRead(node.name, Math.min(at, node.blob.size), node.blob.size);
    }
    const bytes = block.subarray(at % blockBytes, at % blockBytes + into.length);
    into.set(bytes);
    return bytes.length;
  }

  write(node, at, bytes) {
    if (node.blob) throw fault('EROFS');
    const end = at + bytes.length;
    if (end > node.data.length) {
      const data = new Uint8Array(Math.max(end, 2 * node.data.length, 4096));
      data.set(node.data);
      node.data = data;
    }
    node.data.set(bytes, at);
    Object.assign(node, { size: Math.max(node.size, end), changed: Date.now() });
    return bytes.length;
  }
}

const flag = { O_RDONLY: 0, O_WRONLY: 1, O_RDWR: 2, O_CREAT: 64, O_EXCL: 128, O_TRUNC: 512, O_APPEND: 1024, O_DIRECTORY: 65536 };

// calls are the functions of fs over a tree, without their callbacks.
const calls = (files) => ({
  open(path, flags) {
    let { folder, name, node } = files.at(path);
    if (node && flags & flag.O_EXCL) throw fault('EEXIST');
    if (!node && !(flags & flag.O_CREAT)) throw fault('ENOENT');
    if (flags & flag.O_DIRECTORY && !node.entries) throw fault('ENOTDIR');
    if (node && node.entries && flags & (flag.O_WRONLY | flag.O_RDWR)) throw fault('EISDIR');
    node ||= files.put(folder, name, { data: new Uint8Array(0), size: 0 });
    if (flags & flag.O_TRUNC) Object.assign(node, { data: new Uint8Array(0), size: 0 });
    files.opened.set(++files.lastOpened, { node, at: 0, append: (flags & flag.O_APPEND) !== 0 });
    return files.lastOpened;
  },
  close(number) {
    files.file(number);
    files.opened.delete(number);
  },
  read(number, buffer, offset, length, position) {
    if (number === 0) return 0;
    const file = files.file(number);
    const n = files.read(file.node, position ?? file.at, buffer.subarray(offset, offset + length));
    if (position === null) file.at += n;
    return n;
  },
  write(number, buffer, offset, length, position) {
    const bytes = buffer.subarray(offset, offset + length);
    if (number <= 2) {
      files.printed[number].push(bytes);
      return length;
    }
    const file = files.file(number);
    if (file.append) file.at = file.node.size;
    const n = files.write(file.node, position ?? file.at, bytes);
    if (position === null) file.at += n;
    return n;
  },
  fstat: (number) => status(number > 2 ? files.file(number).node : { number, changed: 0, device: true }),
  stat: (path) => status(files.there(path)),
  lstat: (path) => status(files.there(path)),
  readdir(path) {
    const { entries } = files.there(path);
    if (!entries) throw fault('ENOTDIR');
    return [...entries.keys()];
  },
  mkdir(path) {
    const { folder, name, node } = files.at(path);
    if (node) throw fault('EEXIST');
    files.put(folder, name, { entries: new Map() });
  },
  rmdir(path) {
    const { folder, name, node } = files.at(path);
    if (!node) throw fault('ENOENT');
    if (!node.entries) throw fault('ENOTDIR');
    if (node.entries.size > 0) throw fault('ENOTEMPTY');
    folder.entries.delete(name);
  },
  unlink(path) {
    const { folder, name, node } = files.at(path);
    if (!node) throw fault('ENOENT');
    if (node.entries) throw fault('EISDIR');
    folder.entries.delete(name);
  },
  rename(from, to) {
    const moved = files.at(from), place = files.at(to);
    if (!moved.node) throw fault('ENOENT');
    moved.folder.entries.delete(moved.name);
    place.folder.entries.set(place.name, moved.node);
  },
});

// status is a file's as fs gives it.
function status(node) {
  const size = node.entries || node.device ? 0 : node.blob ? node.blob.size : node.size;
  const time = node.changed;
  return {
    dev: 1, ino: node.number, mode: node.entries ? 0o40755 : node.device ? 0o20644 : 0o100644, nlink: 1, uid: 0, gid: 0, rdev: 0, size,
    blksize: 4096, blocks: 0, atimeMs: time, mtimeMs: time, ctimeMs: time, isDirectory: () => node.entries !== undefined,
  };
}

// mount makes a tree the files of the programs that start from now on.
function mount(files) {
  const fs = { constants: flag, writeSync: (number, bytes) => files.printed[number].push(bytes.slice()) }; // for Go's last words
  for (const [name, call] of Object.entries(calls(files))) {
    fs[name] = (...args) => {
      const done = args.pop();
      let result, error = null;
      try {
        result = call(...args);
      } catch (thrown) {
        error = typeof thrown.code === 'string' ? thrown : fault(thrown instanceof RangeError ? 'ENOSPC' : 'EIO');
      }
      done(error, result);
    };
  }
  const lacking = (...args) => args.pop()(fault('ENOSYS'));
  globalThis.fs = new Proxy(fs, { get: (_, name) => fs[name] || lacking });
  globalThis.path = { resolve: (...parts) => parts.join('/') };
  globalThis.process = { pid: 1, ppid: 1, cwd: () => files.folder };
}
