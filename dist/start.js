/******/ (() => { // webpackBootstrap
/******/ 	"use strict";
/******/ 	// The require scope
/******/ 	var __nccwpck_require__ = {};
/******/ 	
/************************************************************************/
/******/ 	/* webpack/runtime/define property getters */
/******/ 	(() => {
/******/ 		// define getter functions for harmony exports
/******/ 		__nccwpck_require__.d = (exports, definition) => {
/******/ 			for(var key in definition) {
/******/ 				if(__nccwpck_require__.o(definition, key) && !__nccwpck_require__.o(exports, key)) {
/******/ 					Object.defineProperty(exports, key, { enumerable: true, get: definition[key] });
/******/ 				}
/******/ 			}
/******/ 		};
/******/ 	})();
/******/ 	
/******/ 	/* webpack/runtime/hasOwnProperty shorthand */
/******/ 	(() => {
/******/ 		__nccwpck_require__.o = (obj, prop) => (Object.prototype.hasOwnProperty.call(obj, prop))
/******/ 	})();
/******/ 	
/******/ 	/* webpack/runtime/make namespace object */
/******/ 	(() => {
/******/ 		// define __esModule on exports
/******/ 		__nccwpck_require__.r = (exports) => {
/******/ 			if(typeof Symbol !== 'undefined' && Symbol.toStringTag) {
/******/ 				Object.defineProperty(exports, Symbol.toStringTag, { value: 'Module' });
/******/ 			}
/******/ 			Object.defineProperty(exports, '__esModule', { value: true });
/******/ 		};
/******/ 	})();
/******/ 	
/************************************************************************/
var __webpack_exports__ = {};
// ESM COMPAT FLAG
__nccwpck_require__.r(__webpack_exports__);

// EXPORTS
__nccwpck_require__.d(__webpack_exports__, {
  start: () => (/* binding */ start)
});

;// CONCATENATED MODULE: external "node:path"
const external_node_path_namespaceObject = require("node:path");
;// CONCATENATED MODULE: external "node:fs"
const external_node_fs_namespaceObject = require("node:fs");
;// CONCATENATED MODULE: external "node:vm"
const external_node_vm_namespaceObject = require("node:vm");
;// CONCATENATED MODULE: ./build/start/bundle.js



/**
 * Loads the bundle, whose text is a function in ASCII that can load only modules of Node.js. Node.js compiles what the
 * kept code lacks. If that code was compiled by another version or with other options, Node.js compiles everything.
 */
function loadBundle(file, compiled) {
    const bytes = (0,external_node_fs_namespaceObject.readFileSync)(file);
    const cachedData = compiled.read(bytes);
    const script = new external_node_vm_namespaceObject.Script(bytes.toString('latin1'), { filename: file, ...(cachedData && { cachedData }) });
    if (script.cachedDataRejected === true)
        compiled.discard();
    const module = { exports: {} };
    script.runInThisContext()(module, module.exports, process.getBuiltinModule, (0,external_node_path_namespaceObject.dirname)(file));
    return { exports: module.exports, compile: () => script.createCachedData() };
}

;// CONCATENATED MODULE: ./build/start/cache-folder.js

/**
 * Returns this action's folder in the user's cache, whose data can be lost (XDG Base Directory Specification). The
 * folder may not exist yet. Returns undefined if the environment names no absolute path. By default, the folder is not
 * in a project root: a service that may write only there, but runs as the same user, must not be able to replace this
 * action's compiled code.
 */
function cacheFolder({ XDG_CACHE_HOME, HOME }) {
    const bases = [XDG_CACHE_HOME ?? '', (0,external_node_path_namespaceObject.join)(HOME ?? '', '.cache')];
    const base = bases.find(external_node_path_namespaceObject.isAbsolute);
    return base && (0,external_node_path_namespaceObject.join)(base, 'hub-deploy');
}

;// CONCATENATED MODULE: external "node:crypto"
const external_node_crypto_namespaceObject = require("node:crypto");
;// CONCATENATED MODULE: ./build/install/files/temporary-name.js

/**
 * Returns a path next to `path` that contains the id of this process, so that the files of a killed process can be
 * found and removed.
 */
function temporaryName(path) {
    return `${path}.${process.pid}.${(0,external_node_crypto_namespaceObject.randomUUID)()}.tmp`;
}
/** Returns the id of the process that a temporary name belongs to, or undefined for any other name. */
function ownerOfTemporary(name) {
    const pid = /\.(\d{1,10})\.[0-9a-f-]{36}\.tmp$/.exec(name)?.[1];
    return pid === undefined ? undefined : Number(pid);
}

;// CONCATENATED MODULE: ./build/install/host/ownership/private-directory.js
const GROUP_AND_OTHERS = 0o077;
/**
 * Returns what is wrong with a directory that must be ours alone (its type, owner or mode), or undefined if nothing is
 * wrong.
 */
function findExposureOf(found, us) {
    if (!found.isDirectory())
        return 'type';
    if (found.uid !== us)
        return 'owner';
    return isOpenToOthers(found) ? 'mode' : undefined;
}
/** True if users other than the owner have any access to a file or directory. */
function isOpenToOthers({ mode }) {
    return (mode & GROUP_AND_OTHERS) !== 0;
}

;// CONCATENATED MODULE: ./build/start/private-file.js




/** A dispensable file must not use up a disk's last space. */
const MIN_FREE_BYTES = 64 * 1024 * 1024;
/**
 * Reads a regular file that belongs to us alone and has one name. Returns undefined for any other file, for a file of
 * more than `maxBytes`, and if there is no file. Never waits for a pipe. Throws the system's error for a symlink and
 * for a file that cannot be read.
 */
function readPrivateFile(path, maxBytes) {
    const fd = openIfPresent(path);
    if (fd === undefined)
        return undefined;
    try {
        const found = (0,external_node_fs_namespaceObject.fstatSync)(fd);
        const isOurs = found.isFile() && found.uid === process.getuid?.() && !isOpenToOthers(found) && found.nlink === 1;
        return isOurs && found.size <= maxBytes ? (0,external_node_fs_namespaceObject.readFileSync)(fd) : undefined;
    }
    finally {
        (0,external_node_fs_namespaceObject.closeSync)(fd);
    }
}
/**
 * Replaces a file as a whole, with mode 0600, but does not sync it. Removes the temporary files of killed processes.
 * Throws the system's error, or one with the code `ENOSPC` if the disk would have less than 64 MiB left.
 */
function replacePrivateFile(path, bytes) {
    removeRemains(path);
    const { bavail, bsize } = (0,external_node_fs_namespaceObject.statfsSync)((0,external_node_path_namespaceObject.dirname)(path));
    if (bavail * bsize < MIN_FREE_BYTES + bytes.length)
        throw Object.assign(new Error('Little space.'), { code: 'ENOSPC' });
    const temporary = temporaryName(path);
    try {
        (0,external_node_fs_namespaceObject.writeFileSync)(temporary, bytes, { flag: 'wx', mode: 0o600 });
        (0,external_node_fs_namespaceObject.renameSync)(temporary, path);
    }
    catch (error) {
        tryUnlink(temporary);
        throw error;
    }
}
function openIfPresent(path) {
    try {
        return (0,external_node_fs_namespaceObject.openSync)(path, external_node_fs_namespaceObject.constants.O_RDONLY | external_node_fs_namespaceObject.constants.O_NOFOLLOW | external_node_fs_namespaceObject.constants.O_NONBLOCK);
    }
    catch (error) {
        if (error instanceof Error && 'code' in error && error.code === 'ENOENT')
            return undefined;
        throw error;
    }
}
/**
 * In rare cases, this function also removes the temporary file of a live process, whose rename then fails. The failure
 * is harmless, because the file is dispensable.
 */
function removeRemains(path) {
    const folder = (0,external_node_path_namespaceObject.dirname)(path);
    for (const name of (0,external_node_fs_namespaceObject.readdirSync)(folder))
        if (name.startsWith(`${(0,external_node_path_namespaceObject.basename)(path)}.`) && ownerOfTemporary(name) !== undefined)
            tryUnlink((0,external_node_path_namespaceObject.join)(folder, name));
}
function tryUnlink(path) {
    try {
        (0,external_node_fs_namespaceObject.unlinkSync)(path);
    }
    catch {
        // The next run that replaces the file removes this temporary file.
    }
}

;// CONCATENATED MODULE: ./build/install/host/ownership/path-walk.js


/** The number of symlinks that Linux follows in one path. */
const MAX_SYMLINKS = 40;
/**
 * Returns everything that decides where an absolute path leads: each directory, starting with `/`, and each symlink.
 *
 * Throws the system's error if this process has no access to one of them.
 */
function walkPath(path) {
    const way = [];
    const pending = partsOf(path);
    let links = 0;
    let end = visit(external_node_path_namespaceObject.sep);
    while (end !== undefined && pending.length > 0) {
        way.push(end);
        if (!end.stat.isDirectory())
            return { way, end: undefined };
        const at = end.path;
        const next = visit(childOf(at, pending.shift() ?? ''));
        if (!next?.stat.isSymbolicLink()) {
            end = next;
            continue;
        }
        way.push(next);
        if (++links > MAX_SYMLINKS)
            return { way, end: undefined };
        const target = (0,external_node_fs_namespaceObject.readlinkSync)(next.path);
        pending.unshift(...partsOf(target));
        end = visit(target.startsWith(external_node_path_namespaceObject.sep) ? external_node_path_namespaceObject.sep : at);
    }
    return { way, end };
}
/** Joins normal paths, faster than path.join; the name may be `..`, from a symlink. */
function childOf(directory, name) {
    return name === '..' ? (0,external_node_path_namespaceObject.dirname)(directory) : `${directory === external_node_path_namespaceObject.sep ? '' : directory}/${name}`;
}
function visit(path) {
    const stat = (0,external_node_fs_namespaceObject.lstatSync)(path, { throwIfNoEntry: false });
    return stat && { path, stat };
}
function partsOf(path) {
    return path.split(external_node_path_namespaceObject.sep).filter(part => part !== '' && part !== '.');
}

;// CONCATENATED MODULE: ./build/install/host/ownership/deciders.js

const STICKY = 0o1000;
const GROUP_AND_OTHERS_WRITE = 0o022;
/**
 * Returns everything that decides where an absolute path leads and what is there, in the order of `walkPath`; `us` is
 * our uid.
 */
function decidersOf(path, us) {
    const { way, end } = walkPath(path);
    const before = way.map(visited => judge(visited, { us, isEnd: false }));
    return end?.stat.isDirectory() ? [...before, judge(end, { us, isEnd: true })] : before;
}
/** In a sticky directory, other users can rename and remove only their own files. */
function isSticky({ mode }) {
    return (mode & STICKY) !== 0;
}
/** The sticky bit is not enough at the end of a path, where others could add a file. */
function judge(visited, { us, isEnd }) {
    const { uid, mode } = visited.stat;
    // The mode of a symlink has no meaning.
    const isFixed = visited.stat.isSymbolicLink() || (!isEnd && isSticky(visited.stat));
    return {
        ...visited,
        isForeign: uid !== us && uid !== 0,
        isOpen: !isFixed && (mode & GROUP_AND_OTHERS_WRITE) !== 0,
    };
}

;// CONCATENATED MODULE: ./build/start/trusted-folder.js




/**
 * True if a folder is a real directory that belongs to us alone, in a place that only we and root can change. These are
 * the rules of `requireSafeHost` for `.hub-deploy/`, without the exception that an operator can make. Throws the
 * system's error if the folder cannot be examined.
 */
function isTrustedFolder(path) {
    const us = process.getuid?.();
    const found = (0,external_node_fs_namespaceObject.lstatSync)(path, { throwIfNoEntry: false });
    if (us === undefined || found === undefined)
        return false;
    return findExposureOf(found, us) === undefined && isDecidedByUs((0,external_node_path_namespaceObject.dirname)(path), us);
}
/** Like `isTrustedFolder`, but first creates a missing folder and its parents if nobody else can change their place. */
function makeTrustedFolder(path) {
    const us = process.getuid?.();
    if (us === undefined)
        return false;
    if (isMissing(path) && makeWay((0,external_node_path_namespaceObject.dirname)(path), us))
        (0,external_node_fs_namespaceObject.mkdirSync)(path, { mode: 0o700 });
    return isTrustedFolder(path);
}
function makeWay(folder, us) {
    if (!isMissing(folder))
        return isDecidedByUs(folder, us);
    if (!makeWay((0,external_node_path_namespaceObject.dirname)(folder), us))
        return false;
    (0,external_node_fs_namespaceObject.mkdirSync)(folder, { mode: 0o700 });
    return true;
}
function isDecidedByUs(folder, us) {
    return decidersOf(folder, us).every(({ isForeign, isOpen }) => !isForeign && !isOpen);
}
function isMissing(path) {
    return (0,external_node_fs_namespaceObject.lstatSync)(path, { throwIfNoEntry: false }) === undefined;
}

;// CONCATENATED MODULE: ./build/start/compiled-code.js




const NAME = 'compiled';
/**
 * The bytes before the code: a digest and the list of runs. Their total size must be a multiple of 8 so that V8 can use
 * the code in place.
 */
const DIGEST_BYTES = 32;
const RUNS_BYTES = 96;
const HEADER_BYTES = DIGEST_BYTES + RUNS_BYTES;
/** Ten times the code that a complete deployment compiles. */
const MAX_BYTES = 16 * 1024 * 1024;
/**
 * The bundle's code as Node.js has compiled it, in one file of this user's cache. A process that can write that file
 * decides what runs, so the file is read and written only in a folder that only this user and root can change. Never
 * throws: without the file, a run merely takes longer.
 *
 * Different runs need different functions. For example, an update also compares and moves the old tree. The file
 * therefore lists the kinds of runs that have contributed to its code, and the first run of another kind adds the
 * functions that it has compiled.
 *
 * The file is not synced. Its digest exposes a torn file, and a file for another bundle or another Node.js. The next
 * run that keeps its code replaces such a file.
 */
class CompiledCode {
    #folder;
    /** The Node.js version, the architecture and the bundle that the compiled code is for. */
    #origin = '';
    /** The kinds of runs that have contributed; undefined if no code is kept. */
    #runs;
    /** The folder may not exist yet. */
    constructor(folder) {
        this.#folder = folder;
    }
    /** Returns the code kept for exactly this bundle and this Node.js; undefined if there is none that can be trusted. */
    read(bundle) {
        this.#origin = `${process.version} ${process.arch} ${(0,external_node_crypto_namespaceObject.hash)('sha256', bundle)}`;
        return attempt('read', () => {
            const folder = this.#folder;
            if (folder === undefined || !isTrustedFolder(folder))
                return undefined;
            const file = readPrivateFile((0,external_node_path_namespaceObject.join)(folder, NAME), MAX_BYTES);
            if (file === undefined || file.length < HEADER_BYTES)
                return undefined;
            const [runs, code] = [file.subarray(DIGEST_BYTES, HEADER_BYTES), file.subarray(HEADER_BYTES)];
            if (!this.#seal(runs, code).equals(file.subarray(0, DIGEST_BYTES)))
                return undefined;
            const list = runs.toString('latin1').trimEnd();
            this.#runs = list === '' ? [] : list.split(',');
            return code;
        });
    }
    /** Forgets the code that was read: Node.js has refused it. */
    discard() {
        this.#runs = undefined;
    }
    /**
     * Replaces the kept code, unless a run of the same kind has already contributed to it or the list of kinds has no
     * room. A run without a kind may have lost code that it compiled. Its code is kept only if no other code is kept, and
     * the next run with a kind replaces it.
     */
    keep(run, compile) {
        attempt('kept', () => {
            const folder = this.#folder;
            if (folder === undefined || !this.#lacks(run) || !makeTrustedFolder(folder))
                return;
            const list = [...(this.#runs ?? []), run].filter(kind => kind !== undefined).join(',');
            const runs = Buffer.from(list.padEnd(RUNS_BYTES), 'latin1');
            if (runs.length > RUNS_BYTES)
                return;
            const code = compile();
            replacePrivateFile((0,external_node_path_namespaceObject.join)(folder, NAME), Buffer.concat([this.#seal(runs, code), runs, code]));
        });
    }
    #lacks(run) {
        return this.#runs === undefined || (run !== undefined && !this.#runs.includes(run));
    }
    #seal(runs, code) {
        const text = `${this.#origin} ${runs.toString('latin1')} ${(0,external_node_crypto_namespaceObject.hash)('sha256', code)}`;
        return (0,external_node_crypto_namespaceObject.hash)('sha256', Buffer.from(text), 'buffer');
    }
}
/**
 * Returns undefined if `act` throws. If the runner's debug log is on, it then says why this run or the next one takes
 * longer.
 */
function attempt(deed, act) {
    try {
        return act();
    }
    catch (error) {
        const code = error instanceof Error && 'code' in error ? error.code : 'unknown error';
        if (process.env['RUNNER_DEBUG'] === '1')
            process.stdout.write(`::debug::Compiled code was not ${deed}: ${code}\n`);
        return undefined;
    }
}

;// CONCATENATED MODULE: ./build/start/start.js




/**
 * V8 drops compiled code that several full garbage collections have found unused. A run that has used less processor
 * time than this, in microseconds, has not had that many collections.
 */
const MAX_PROCESSOR_TIME = 1_000_000;
/**
 * Runs an action of the bundle in `folder`. Uses the code that earlier runs compiled, if that code can be trusted.
 * After a run that changed the host, the code that the run needed is kept for later runs.
 */
function start(folder, action) {
    const release = holdCancel();
    const compiled = new CompiledCode(cacheFolder(process.env));
    const { exports, compile } = loadBundle((0,external_node_path_namespaceObject.join)(folder, 'index.js'), compiled);
    const run = exports[action];
    if (run === undefined)
        throw new Error(`The bundle has no action ${action}.`);
    const ended = run(kind => compiled.keep(isShort() ? `${action}: ${kind}` : undefined, compile));
    release();
    return ended;
}
/**
 * Makes sure that the action sees a cancel that arrives while the bundle is loaded. The signal waits until the event
 * loop turns, and the action begins to listen before its first `await`. Without a listener, the signal would end the
 * process without a result.
 */
function holdCancel() {
    const hold = () => { };
    for (const signal of ['SIGINT', 'SIGTERM'])
        process.on(signal, hold);
    return () => {
        for (const signal of ['SIGINT', 'SIGTERM'])
            process.off(signal, hold);
    };
}
function isShort() {
    const { user, system } = process.cpuUsage();
    return user + system < MAX_PROCESSOR_TIME;
}

module.exports = __webpack_exports__;
/******/ })()
;