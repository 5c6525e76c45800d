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
  cacheFolder: () => (/* binding */ cacheFolder),
  isTrustedFolder: () => (/* binding */ isTrustedFolder),
  loadBundle: () => (/* binding */ loadBundle),
  makeTrustedFolder: () => (/* binding */ makeTrustedFolder),
  start: () => (/* binding */ start)
});

;// CONCATENATED MODULE: external "node:crypto"
const external_node_crypto_namespaceObject = require("node:crypto");
;// CONCATENATED MODULE: external "node:fs"
const external_node_fs_namespaceObject = require("node:fs");
;// CONCATENATED MODULE: external "node:path"
const external_node_path_namespaceObject = require("node:path");
;// CONCATENATED MODULE: external "node:vm"
const external_node_vm_namespaceObject = require("node:vm");
;// CONCATENATED MODULE: ./build/core/text.js
const MAX_FOREIGN_TEXT_CHARS = 500;
/** Marks a cut in a text, so that a redactor knows where a secret may have been cut in two. */
const CUT_MARK = '… (cut)';
// biome-ignore lint/suspicious/noControlCharactersInRegex: it exists to find control characters
const ANSI_SEQUENCE = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;
const CONTROL_OR_FORMAT = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]+/gu;
// The runner compares by the rules of a language, which ignore some characters outside ASCII.
const WORKFLOW_COMMAND = /^[^!-~]*:(?=[^ -~\u00b7]*:)|#(?=[^ -~\u00b7]*#[^ -~\u00b7]*\[)/g;
/**
 * Makes text from a hub, a child process or an archive safe to show on one line. Removes ANSI sequences, and replaces
 * each run of control, direction or zero-width characters with a space. Cuts the text after `maxChars` characters, and
 * marks the cut. Text for a log also needs `cleanLogLine`.
 */
function text_cleanForeignText(text, maxChars = MAX_FOREIGN_TEXT_CHARS) {
    const flat = text
        .slice(0, maxChars * 4)
        .replace(ANSI_SEQUENCE, '')
        .replace(CONTROL_OR_FORMAT, ' ')
        .trim();
    const characters = [...flat];
    const isCut = characters.length > maxChars || text.length > maxChars * 4;
    return isCut ? `${characters.slice(0, maxChars).join('')}${CUT_MARK}` : flat;
}
/**
 * Like `cleanForeignText`, for a line of a workflow log: also breaks up what the runner would run as a command, which
 * is `::` at the start of a line, and `##[` anywhere.
 */
function cleanLogLine(text, maxChars) {
    return text_cleanForeignText(text, maxChars).replace(WORKFLOW_COMMAND, '$&\u00b7');
}
const MAX_LISTED_NAMES = 20;
/** Lists up to 20 cleaned names, separated by commas, and counts the rest, because a publisher may list thousands. */
function listNames(names) {
    return listFirst(names.map(name => text_cleanForeignText(name, 64)), MAX_LISTED_NAMES);
}
/**
 * Returns the text as a sentence that another sentence can follow. Adds a period unless the text already ends with `.`,
 * `!` or `?`. A closing quotation mark or parenthesis may follow.
 */
function asSentence(text) {
    return /[.!?]["')]?$/.test(text) ? text : `${text}.`;
}
/** Quotes a word for a shell, if that is necessary. */
function shellWord(word) {
    return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
const UNITS = (/* unused pure expression or super */ null && (['kB', 'MB', 'GB']));
const [SECOND_MS, MINUTE_MS] = [1000, 60_000];
/** A number of at least this size rounds to 10 or more and is shown without a decimal. */
const PLAIN_FROM = 9.95;
/** Formats a number of bytes for people: `919 bytes`, `8.9 MB`. */
function bytesInWords(bytes) {
    if (bytes < 1000)
        return bytes === 1 ? '1 byte' : `${bytes} bytes`;
    let [size, unit] = [bytes, -1];
    while (size >= 999.5 && unit < UNITS.length - 1)
        [size, unit] = [size / 1000, unit + 1];
    return `${withPoint(size)} ${UNITS[unit]}`;
}
/** Formats a duration for people: `15 ms`, `4.2 s`, `2 min 5 s`. */
function durationInWords(ms) {
    if (ms < 99.5)
        return `${Math.round(ms)} ms`;
    if (ms < MINUTE_MS - SECOND_MS / 2)
        return `${withPoint(ms / SECOND_MS)} s`;
    const seconds = Math.round(ms / SECOND_MS);
    return `${countInWords(Math.floor(seconds / 60))} min${seconds % 60 === 0 ? '' : ` ${seconds % 60} s`}`;
}
/** Formats a count with its noun: `1 file`, `3,012 files`; without a noun, `3,012`. */
function countInWords(count, noun) {
    const digits = String(count).replace(/\B(?=(?:\d{3})+$)/g, ',');
    return noun === undefined ? digits : `${digits} ${noun}${count === 1 ? '' : 's'}`;
}
/** Lists the first items and the number of the others: `a, b and 3 more`. */
function listFirst(items, max, separator = ', ') {
    const more = items.length - max;
    return `${items.slice(0, max).join(separator)}${more > 0 ? ` and ${more} more` : ''}`;
}
/** Lists all items: `a, b and c`. */
function listAll(items) {
    const last = items.at(-1) ?? '';
    return items.length < 2 ? last : `${items.slice(0, -1).join(', ')} and ${last}`;
}
/** Returns enough of a digest to recognize it. */
function shortDigest(hex) {
    return hex.length <= 16 ? hex : `${hex.slice(0, 8)}…${hex.slice(-4)}`;
}
function withPoint(size) {
    return size < PLAIN_FROM ? size.toFixed(1).replace(/\.0$/, '') : String(Math.round(size));
}
const MAX_CELL_CHARS = 1500;
/**
 * Returns text from outside as one line of Markdown that shows just that text, without turning a bare URL into a link.
 */
function cell(text) {
    return cellOf(text, MAX_CELL_CHARS);
}
/** Like `cell`, but cuts the text at `maxChars`, for tables with many rows. */
function cellOf(text, maxChars) {
    return text_cleanForeignText(text, maxChars).replace(/[\\`*_{}[\]<>|#!~&@$]|:(?=\/\/)|(?<=www)\./gi, character => `&#${character.codePointAt(0)};`);
}
/** Like `cellOf`, but formats the text as code. */
function code(text, maxChars = MAX_CELL_CHARS) {
    return `<code>${cellOf(text, maxChars)}</code>`;
}
/** Returns a sentence as Markdown: text between backticks becomes code, and everything else is shown literally. */
function words(text) {
    const plain = (part) => `${/^\s/.test(part) ? ' ' : ''}${cell(part)}${/\s$/.test(part) ? ' ' : ''}`;
    return text
        .split('`')
        .map((part, index) => (index % 2 === 0 ? plain(part) : code(part)))
        .join('');
}
/** Builds a table of cells that are already Markdown. */
function table(head, rows) {
    const line = (cells) => `| ${cells.join(' | ')} |`;
    return [line(head), line(head.map(() => '---')), ...rows.map(line)].join('\n');
}
/** Builds a link if `url` is a plain http or https address; otherwise returns the text alone. */
function text_link(text, url) {
    return url !== null && /^https?:\/\/[\w.:/%+-]{1,500}$/.test(url) ? `[${text}](${url})` : text;
}
/** Builds a highlighted block of lines that are already Markdown; several lines become a list. */
function text_alert(kind, lines) {
    const items = lines.length === 1 ? lines : lines.map(line => `- ${line}`);
    return [`[!${kind}]`, ...items].map(line => `> ${line}`).join('\n');
}
/** Builds a block of Markdown that is closed until a reader opens it. */
function details(title, blocks) {
    return [`<details><summary>${title}</summary>`, ...blocks, '</details>'].join('\n\n');
}
/** Builds a list of the first items, as many as fit into `maxChars` characters of JSON. */
function fitList(items, maxChars) {
    const texts = [];
    let room = maxChars - '['.length;
    for (const item of items) {
        const text = JSON.stringify(item);
        // A comma or the final bracket follows each item.
        room -= text.length + ','.length;
        if (room < 0)
            break;
        texts.push(text);
    }
    return { json: `[${texts.join(',')}]`, omitted: items.length - texts.length };
}
/** Shorter secrets are not replaced; nor are shorter beginnings of a secret before a cut. */
const SHORTEST_REDACTED = 4;
const CUT_SIGN = CUT_MARK.charAt(0);
/**
 * Returns a function that replaces every secret, and every line of a secret, in a text with `***`. If the text was cut
 * inside a secret, the function also replaces the beginning of that secret. Files and outputs need this function,
 * because the runner masks only the log. Secrets and lines of fewer than 4 characters stay: replacing them would garble
 * every sentence.
 */
function createRedactor(secrets) {
    const known = secrets
        .flatMap(secret => (secret === undefined ? [] : [secret, secret.trim(), ...secret.split(/\r?\n/)]))
        .filter(secret => secret.length >= SHORTEST_REDACTED);
    const forms = [...new Set(known.flatMap(formsOf))].sort((a, b) => b.length - a.length);
    const withSign = forms.filter(form => form.includes(CUT_SIGN));
    return text => redactWhole(redactCut(redactWhole(text, withSign), forms), forms);
}
/**
 * Returns the forms that a secret may have in a text: unchanged, in JSON, in a URL, in Markdown, and cleaned as foreign
 * text.
 */
function formsOf(secret) {
    const printed = [secret, text_cleanForeignText(secret, Number.POSITIVE_INFINITY), cellOf(secret, Number.POSITIVE_INFINITY)];
    const forms = [...printed, ...printed.map(form => JSON.stringify(form).slice(1, -1)), encodeURIComponent(secret)];
    return forms.filter(form => form.length >= SHORTEST_REDACTED);
}
function redactWhole(text, forms) {
    return forms.reduce((redacted, form) => redacted.replaceAll(form, '***'), text);
}
function redactCut(text, forms) {
    const pieces = text.split(CUT_SIGN);
    const last = pieces.length - 1;
    return pieces.map((piece, index) => (index < last ? redactEnd(piece, forms) : piece)).join(CUT_SIGN);
}
/** Replaces the longest end of the text that is also the beginning of a secret. */
function redactEnd(text, forms) {
    const length = Math.max(0, ...forms.map(form => commonLength(text, form)));
    return length === 0 ? text : `${text.slice(0, -length)}***`;
}
/** Returns how many characters at the end of the text are also the beginning of the secret; 0 if fewer than 4. */
function commonLength(text, secret) {
    for (let length = Math.min(text.length, secret.length); length >= SHORTEST_REDACTED; length--) {
        if (text.endsWith(secret.slice(0, length)))
            return length;
    }
    return 0;
}

;// CONCATENATED MODULE: ./build/install/host/permissions.js



const STICKY = 0o1000;
const GROUP_AND_OTHERS_WRITE = 0o022;
/**
 * Returns everything that decides where an absolute path leads and what is there, in the order of `walkPath`; `us` is
 * our uid.
 */
function decidersOf(path, us) {
    const { way, end } = walkPath(path);
    const before = way.map(visited => deciderOf(visited, { us, isEnd: false }));
    return end?.stat.isDirectory() ? [...before, deciderOf(end, { us, isEnd: true })] : before;
}
/** In a sticky directory, other users can rename and remove only their own files. */
function isSticky({ mode }) {
    return (mode & STICKY) !== 0;
}
/** The sticky bit is not enough at the end of a path, where others could add a file. */
function deciderOf(visited, { us, isEnd }) {
    const { uid, mode } = visited.stat;
    // The mode of a symlink has no meaning.
    const isFixed = visited.stat.isSymbolicLink() || (!isEnd && isSticky(visited.stat));
    return {
        ...visited,
        isForeign: uid !== us && uid !== 0,
        isOpen: !isFixed && (mode & GROUP_AND_OTHERS_WRITE) !== 0,
    };
}
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
const GROUP_WRITE = 0o020;
const OTHERS_WRITE = 0o002;
/**
 * Names those who can write to a file or directory, other than its owner. Write access that an ACL grants shows in the
 * group's bits.
 */
function otherWriters({ mode, gid }) {
    return [
        ...((mode & GROUP_WRITE) === 0 ? [] : [`${nameGroup(gid)} or an ACL`]),
        ...((mode & OTHERS_WRITE) === 0 ? [] : ['every user']),
    ];
}
/** Names a user for an operator: by the name in /etc/passwd, if there is one, and always by number. */
function nameUser(uid) {
    return nameAccount('/etc/passwd', 'user', uid);
}
/** Quotes a path as an argument of a command that the operator copies. */
function quote(path) {
    const text = cleanForeignText(path, 4096);
    return /^[\w/.@%+,:=-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
/** Returns the name in /etc/passwd; undefined if there is none. */
function findUserName(uid) {
    const name = findName('/etc/passwd', uid);
    return name === undefined ? undefined : cleanForeignText(name, 64);
}
function nameGroup(gid) {
    return nameAccount('/etc/group', 'group', gid);
}
function nameAccount(file, kind, id) {
    const name = findName(file, id);
    return name === undefined ? `${kind} ${id}` : `${kind} ${cleanForeignText(name, 64)} (${id})`;
}
/** Both /etc/passwd and /etc/group have the name first and the number third. */
function findName(file, id) {
    try {
        const rows = readFileSync(file, 'utf8').split('\n');
        return rows.map(row => row.split(':')).find(([, , number]) => number === String(id))?.[0];
    }
    catch {
        return undefined;
    }
}
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

;// CONCATENATED MODULE: ./build/start/start.js





/**
 * Runs an action of the bundle in `folder`. Uses the code that an earlier run compiled, if that code can be trusted.
 * The first run that changes the host keeps the code that it needed for later runs.
 */
function start(folder, action) {
    const release = holdCancel();
    const { exports, keepCompiled } = loadBundle((0,external_node_path_namespaceObject.join)(folder, 'index.js'), cacheFolder(process.env));
    const run = exports[action];
    if (run === undefined)
        throw new Error(`The bundle has no action ${action}.`);
    const ended = run(keepCompiled);
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
const NAME = 'compiled';
/** The bytes before the code. Their number must be a multiple of 8, so that V8 can use the code in place. */
const DIGEST_BYTES = 32;
/**
 * Loads the bundle, whose text is a function in ASCII that can load only modules of Node.js. Without the code that an
 * earlier run kept in the folder `cache`, a run merely takes longer: Node.js compiles what the kept code lacks. V8
 * refuses code that was compiled by another version of itself or with other options.
 *
 * A process that can write the kept code decides what runs, so the code is read and written only in a folder that only
 * this user and root can change. It is not synced. Its digest exposes a torn file, and a file for another bundle or
 * another Node.js.
 *
 * Node's own compile cache keeps only what is compiled before the bundle runs, less than half of what a run needs. With
 * it, S takes 28 % more processor time (AMD EPYC).
 */
function loadBundle(file, cache) {
    const bytes = (0,external_node_fs_namespaceObject.readFileSync)(file);
    const origin = `${process.version} ${process.arch} ${(0,external_node_crypto_namespaceObject.hash)('sha256', bytes)}`;
    const cachedData = attempt(() => readCompiled(cache, origin));
    const script = new external_node_vm_namespaceObject.Script(bytes.toString('latin1'), { filename: file, ...(cachedData && { cachedData }) });
    const isKept = script.cachedDataRejected === false;
    const module = { exports: {} };
    script.runInThisContext()(module, module.exports, process.getBuiltinModule, (0,external_node_path_namespaceObject.dirname)(file));
    const keepCompiled = () => {
        if (!isKept)
            attempt(() => writeCompiled(cache, origin, script));
    };
    return { exports: module.exports, keepCompiled };
}
function readCompiled(cache, origin) {
    if (cache === undefined || !isTrustedFolder(cache))
        return undefined;
    const file = (0,external_node_fs_namespaceObject.readFileSync)((0,external_node_path_namespaceObject.join)(cache, NAME));
    const code = file.subarray(DIGEST_BYTES);
    return seal(origin, code).equals(file.subarray(0, DIGEST_BYTES)) ? code : undefined;
}
function writeCompiled(cache, origin, script) {
    if (cache === undefined || !makeTrustedFolder(cache))
        return;
    const code = script.createCachedData();
    (0,external_node_fs_namespaceObject.writeFileSync)((0,external_node_path_namespaceObject.join)(cache, NAME), Buffer.concat([seal(origin, code), code]), { mode: 0o600 });
}
function seal(origin, code) {
    return (0,external_node_crypto_namespaceObject.hash)('sha256', `${origin} ${(0,external_node_crypto_namespaceObject.hash)('sha256', code)}`, 'buffer');
}
/** Returns undefined if `act` throws. */
function attempt(act) {
    try {
        return act();
    }
    catch {
        return undefined;
    }
}
/**
 * Returns this action's folder in the user's cache, whose data can be lost (XDG Base Directory Specification). The
 * folder may not exist yet. Returns undefined if the environment names no absolute path. By default, the folder is not
 * in a project root: a service that may write only there, but runs as the same user, must not be able to replace this
 * action's compiled code.
 */
function cacheFolder({ XDG_CACHE_HOME, HOME }) {
    const base = [XDG_CACHE_HOME ?? '', (0,external_node_path_namespaceObject.join)(HOME ?? '', '.cache')].find(external_node_path_namespaceObject.isAbsolute);
    return base && (0,external_node_path_namespaceObject.join)(base, 'hub-deploy');
}
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
/**
 * Like `isTrustedFolder`, but first creates a missing folder and its parents if nobody else can change their place.
 * Throws the system's error if that fails.
 */
function makeTrustedFolder(path) {
    const us = process.getuid?.();
    if (us !== undefined && isDecidedByUs(path, us))
        (0,external_node_fs_namespaceObject.mkdirSync)(path, { recursive: true, mode: 0o700 });
    return isTrustedFolder(path);
}
function isDecidedByUs(path, us) {
    return decidersOf(path, us).every(({ isForeign, isOpen }) => !isForeign && !isOpen);
}

module.exports = __webpack_exports__;
/******/ })()
;