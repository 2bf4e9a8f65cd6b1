'use strict';
// Hover, click, keys and search. The pictures are complete without it; `data.rs` writes the data.
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const byId = (id) => document.getElementById(id);
  const BASE = 36n, GUTTER = 600, WIDTH = 3072, SVG = 'http://www.w3.org/2000/svg';
  const WORDS = { leaving: 'must leave', contested: 'on two nodes', older: 'of an older pool' };
  const TABLE_ROWS = 2000;

  const number = (text) => {
    if (text.length < 10) return BigInt(parseInt(text, 36));
    let value = 0n;
    for (const digit of text) value = value * BASE + BigInt(parseInt(digit, 36));
    return value;
  };

  // Addresses as numbers, and back.
  const parseAddress = (text) => {
    if (/^\d+(\.\d+){3}$/.test(text)) {
      const parts = text.split('.').map(Number);
      return parts.some((part) => part > 255) ? null
        : { family: 4, value: parts.reduce((value, part) => value * 256n + BigInt(part), 0n) };
    }
    if (!text.includes(':') || /[^0-9a-f:]/i.test(text) || text.split('::').length > 2) return null;
    const groups = (part) => (part ? part.split(':') : []);
    const [head, tail] = text.split('::');
    const [before, after] = [groups(head), groups(tail)];
    const missing = 8 - before.length - after.length;
    if (tail === undefined ? missing !== 0 : missing < 1) return null;
    const all = [...before, ...Array(tail === undefined ? 0 : missing).fill('0'), ...after];
    if (all.some((group) => !/^[0-9a-f]{1,4}$/i.test(group))) return null;
    return { family: 6, value: all.reduce((value, group) => value * 65536n + BigInt(parseInt(group, 16)), 0n) };
  };
  const addressText = (family, value) => {
    if (family === 4) return [24n, 16n, 8n, 0n].map((shift) => (value >> shift) & 255n).join('.');
    const groups = [];
    for (let shift = 112n; shift >= 0n; shift -= 16n) groups.push(((value >> shift) & 65535n).toString(16));
    let [longest, start] = [1, -1];
    for (let from = 0; from < 8; from++) {
      let to = from;
      while (to < 8 && groups[to] === '0') to++;
      if (to - from > longest) [longest, start] = [to - from, from];
    }
    if (start < 0) return groups.join(':');
    return `${groups.slice(0, start).join(':')}::${groups.slice(start + longest).join(':')}`;
  };

  // Ranges, with their pieces and lines.
  const readPieces = (text) => {
    let first = 0n;
    return text.split(';').slice(0, -1).map((part) => {
      const fields = part.slice(1).split(',');
      const field = (index) => (fields[index] ? number(fields[index]) : null);
      const small = (index) => (field(index) === null ? null : Number(field(index)));
      const piece = {
        first, count: field(0) ?? 1n, state: data.states[part[0]], node: small(1), used: small(2),
        offered: small(3), since: small(4), until: small(5), note: fields[6] ? data.notes[small(6)] : '',
      };
      first += piece.count;
      return piece;
    });
  };
  const readLines = (text) => text.split(';').slice(0, -1).map((part) => {
    const [y, first, count] = part.slice(1).split(',').map(number);
    return { folded: part[0] === 'f', y: Number(y), first, count };
  });
  const fields = [...document.querySelectorAll('.field')];
  let drawn = 0;
  const ranges = data.ranges.map((range) => {
    const [text, prefix] = range.cidr.split('/');
    const { family, value } = parseAddress(text);
    const bits = family === 4 ? 32 : 128;
    const blockSize = 1n << BigInt(bits - range.block);
    const columns = Number(range.columns);
    const entry = {
      pool: range.pool, cidr: range.cidr, family, base: value, size: 1n << BigInt(bits - Number(prefix)), blockSize,
      prefix: range.block, columns, pitch: columns ? WIDTH / columns : 0, lines: readLines(range.lines),
      pieces: readPieces(range.pieces), element: null,
    };
    if (columns) {
      entry.element = fields[drawn++];
      entry.element.range = entry;
    }
    return entry;
  });
  const nodeBlocks = new Map();
  for (const range of ranges) {
    for (const piece of range.pieces) {
      if (piece.node === null) continue;
      if (!nodeBlocks.has(piece.node)) nodeBlocks.set(piece.node, []);
      nodeBlocks.get(piece.node).push({ range, piece });
    }
  }

  const lastBefore = (list, is) => {
    let [low, high] = [0, list.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (is(list[middle])) low = middle; else high = middle - 1;
    }
    return list[low];
  };
  const pieceAt = (range, block) => lastBefore(range.pieces, (piece) => piece.first <= block);
  const blockText = (range, block) =>
    `${addressText(range.family, range.base + block * range.blockSize)}/${range.prefix}`;
  const stateText = (piece) => WORDS[piece.state] ?? piece.state;
  const time = (seconds) => new Date(seconds * 1000).toISOString().replace('.000Z', 'Z');
  const used = (piece) => (piece.used === null ? '' : `${piece.used} of ${piece.offered} addresses used`);
  const sentence = (range, block) => {
    const piece = pieceAt(range, block);
    return [blockText(range, block), stateText(piece), piece.node === null ? '' : `node ${data.nodes[piece.node]}`,
      used(piece), piece.note].filter(Boolean).join(', ');
  };

  const make = (tag, text, attributes = {}) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    return element;
  };

  // Marks on the pictures.
  const box = (range, block) => {
    const line = lastBefore(range.lines, (one) => one.first <= block);
    if (!line || line.folded) return line && { x: GUTTER, y: line.y + 6, width: WIDTH, height: 80 };
    return {
      x: GUTTER + Number(block - line.first) * range.pitch, y: line.y, width: range.pitch, height: range.pitch,
    };
  };
  const mark = (range, block, kind) => {
    const at = range.element && box(range, block);
    if (!at) return null;
    const rect = document.createElementNS(SVG, 'rect');
    const grown = Math.max(0, 24 - at.width) / 2;
    rect.setAttribute('class', kind);
    for (const [name, value] of Object.entries({
      x: at.x - grown, y: at.y - grown, width: at.width + 2 * grown, height: at.height + 2 * grown, rx: 6,
    })) rect.setAttribute(name, value);
    range.element.querySelector('.outlines').append(rect);
    return rect;
  };
  const clearMarks = (kind) => document.querySelectorAll(`.outlines rect${kind}`).forEach((rect) => rect.remove());

  // The block that is shown in the panel.
  let selected = null;
  const select = (range, block, { scroll = false } = {}) => {
    const piece = pieceAt(range, block);
    selected = { range, block };
    clearMarks('');
    const kin = piece.node === null ? [] : nodeBlocks.get(piece.node);
    for (const other of kin) {
      for (let at = 0n; at < other.piece.count && at < 64n; at++) mark(other.range, other.piece.first + at, 'kin');
    }
    const rect = mark(range, block, 'sel');
    if (range.element) range.element.at = block;
    if (scroll) {
      const target = range.element ?? document.querySelector('.outside');
      target?.scrollIntoView({ block: 'nearest' });
      rect?.scrollIntoView({ block: 'center', inline: 'center' });
    }
    const rows = [['state', stateText(piece)], ['pool', range.pool], ['range', range.cidr]];
    if (piece.node !== null) rows.push(['node', data.nodes[piece.node]]);
    if (piece.used !== null) rows.push(['use', `${used(piece)} (${Math.floor((piece.used * 100) / Math.max(1, piece.offered))} %)`]);
    if (piece.since !== null) rows.push(['since', time(piece.since)]);
    if (piece.until !== null) rows.push(['free from', time(piece.until)]);
    if (piece.note) rows.push(['note', piece.note]);
    if (piece.count > 1n) rows.push(['alike', `${piece.count} blocks, up to ${blockText(range, piece.first + piece.count - 1n)}`]);
    const list = make('dl');
    for (const [name, value] of rows) list.append(make('dt', name), make('dd', value));
    const text = byId('detail-text');
    text.replaceChildren(make('h3', blockText(range, block)), list);
    if (kin.length > 1) {
      const others = make('ul', undefined, { 'aria-label': 'All blocks of the node' });
      for (const other of kin.slice(0, 40)) {
        const button = make('button', blockText(other.range, other.piece.first), { type: 'button' });
        if (other.range === range && other.piece === piece) button.setAttribute('aria-current', 'true');
        button.addEventListener('click', () => {
          select(other.range, other.piece.first, { scroll: true });
          // The list was written anew: the focus stays on its entry.
          text.querySelector('[aria-current]')?.focus({ preventScroll: true });
        });
        const item = make('li');
        item.append(button);
        others.append(item);
      }
      text.append(others);
    }
    byId('detail').hidden = false;
  };
  const close = () => {
    byId('detail').hidden = true;
    clearMarks('');
    const element = selected?.range.element;
    selected = null;
    element?.focus({ preventScroll: true });
  };
  byId('close').addEventListener('click', close);

  // The pointer.
  const blockAt = (element, event) => {
    const { range } = element;
    const area = element.querySelector('svg').getBoundingClientRect();
    const scale = (GUTTER + WIDTH) / area.width;
    const x = (event.clientX - area.left) * scale - GUTTER;
    const y = (event.clientY - area.top) * scale;
    if (x < 0 || x >= WIDTH || y < 0) return null;
    const line = lastBefore(range.lines, (one) => one.y <= y);
    if (line.folded) return line.first;
    const block = line.first + BigInt(Math.floor(x / range.pitch));
    return block < line.first + line.count ? block : null;
  };
  const tip = byId('tip');
  const hideTip = () => { tip.hidden = true; };
  for (const element of fields) {
    element.addEventListener('pointermove', (event) => {
      const block = blockAt(element, event);
      if (block === null) { hideTip(); return; }
      const [name, ...rest] = sentence(element.range, block).split(', ');
      tip.replaceChildren(make('b', name), make('div', rest.join(', ')));
      tip.hidden = false;
      const { width, height } = tip.getBoundingClientRect();
      tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - width - 8)}px`;
      tip.style.top = `${event.clientY + height + 24 > window.innerHeight ? event.clientY - height - 12 : event.clientY + 16}px`;
    });
    element.addEventListener('pointerleave', hideTip);
    element.addEventListener('click', (event) => {
      const block = blockAt(element, event);
      if (block !== null) select(element.range, block);
    });
    // Keys: a cursor on the blocks, which a screen reader follows.
    element.addEventListener('keydown', (event) => {
      const { range } = element;
      const last = range.pieces.at(-1);
      const end = last.first + last.count - 1n;
      let at = element.at ?? 0n;
      const line = lastBefore(range.lines, (one) => one.first <= at);
      const columns = BigInt(range.columns);
      const steps = {
        ArrowLeft: () => (line.folded ? line.first - 1n : at - 1n), Home: () => 0n, End: () => end,
        ArrowRight: () => (line.folded ? line.first + line.count : at + 1n),
        ArrowUp: () => (line.folded ? line.first - 1n : at - columns),
        ArrowDown: () => (line.folded ? line.first + line.count : at + columns),
        PageUp: () => range.pieces.findLast((piece) => piece.first < at && piece.node !== null)?.first ?? at,
        PageDown: () => range.pieces.find((piece) => piece.first > at && piece.node !== null)?.first ?? at,
      };
      if (event.key === 'Enter' || event.key === ' ') select(range, at);
      else if (steps[event.key]) {
        at = steps[event.key]();
        if (at < 0n) at = 0n;
        if (at > end) at = end;
        element.at = at;
        clearMarks('.sel');
        mark(range, at, 'sel')?.scrollIntoView({ block: 'nearest', inline: 'nearest' });
        byId('said').textContent = sentence(range, at);
      } else return;
      event.preventDefault();
    });
  }
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape' && !byId('detail').hidden) close();
    if (event.key === '/' && event.target === document.body) {
      event.preventDefault();
      byId('query').focus();
    }
  });

  // The legend picks states.
  const picked = new Set();
  for (const button of document.querySelectorAll('.legend button')) {
    button.addEventListener('click', () => {
      const { state } = button.dataset;
      if (!picked.delete(state)) picked.add(state);
      button.setAttribute('aria-pressed', picked.has(state));
      for (const shape of document.querySelectorAll('.field path:not(.grid), .field rect.fold')) {
        const is = [...picked].some((one) => shape.classList.contains(`s-${one}`));
        shape.classList.toggle('dim', picked.size > 0 && !is);
      }
    });
  }

  // The search.
  const found = (text, none = false) => {
    byId('found').textContent = text;
    byId('found').classList.toggle('none', none);
  };
  const find = (query) => {
    const asked = parseAddress(query.split('/')[0]);
    if (asked) {
      const covers = (range) =>
        range.family === asked.family && asked.value >= range.base && asked.value < range.base + range.size;
      const all = ranges.filter(covers).filter((range) => range.pieces.length > 0);
      const of = (range) => ({ range, block: (asked.value - range.base) / range.blockSize });
      const taken = all.map(of).find(({ range, block }) => pieceAt(range, block).state !== 'older');
      const hit = taken ?? all.map(of)[0];
      if (!hit) return found(`no pool has ${query}`, true);
      select(hit.range, hit.block, { scroll: true });
      return found(`${query} is in ${blockText(hit.range, hit.block)}`);
    }
    const name = query.toLowerCase();
    const exact = data.nodes.findIndex((node) => node.toLowerCase() === name);
    const node = exact >= 0 ? exact : data.nodes.findIndex((one) => one.toLowerCase().includes(name));
    const pools = [...document.querySelectorAll('section.pool')];
    const poolName = (section) => section.querySelector('h2').firstChild.textContent.trim().toLowerCase();
    const pool = pools.find((section) => poolName(section) === name)
      ?? (node < 0 ? pools.find((section) => poolName(section).includes(name)) : undefined);
    if (pool && exact < 0) {
      pool.scrollIntoView();
      return found(`pool ${poolName(pool)}`);
    }
    if (node < 0) return found(`no address, node or pool ${query}`, true);
    const blocks = nodeBlocks.get(node);
    select(blocks[0].range, blocks[0].piece.first, { scroll: true });
    return found(`${data.nodes[node]}: ${blocks.length} ${blocks.length === 1 ? 'block' : 'blocks'}`);
  };
  byId('search').addEventListener('submit', (event) => {
    event.preventDefault();
    const query = byId('query').value.trim();
    if (query) find(query);
  });
  byId('query').addEventListener('input', () => {
    const name = byId('query').value.trim().toLowerCase();
    const matches = name.length < 2 ? [] : data.nodes.filter((node) => node.toLowerCase().includes(name)).slice(0, 10);
    byId('matches').replaceChildren(...matches.map((node) => make('option', undefined, { value: node })));
  });

  // The tables, written when one is opened.
  for (const element of fields) {
    const details = element.parentElement.querySelector('details');
    details.addEventListener('toggle', () => {
      const place = details.querySelector('div');
      if (!details.open || place.childElementCount > 0) return;
      const { range } = element;
      const table = make('table');
      table.append(make('caption', `Blocks of ${range.cidr}`, { class: 'hidden' }));
      const head = make('tr');
      for (const name of ['Blocks', 'Count', 'State', 'Node', 'Used', 'Since', 'Note']) head.append(make('th', name, { scope: 'col' }));
      table.createTHead().append(head);
      const body = table.createTBody();
      for (const piece of range.pieces.slice(0, TABLE_ROWS)) {
        const row = make('tr');
        const name = blockText(range, piece.first);
        const last = piece.count > 1n ? ` – ${blockText(range, piece.first + piece.count - 1n)}` : '';
        row.append(make('th', name + last, { scope: 'row' }));
        const cells = [`${piece.count}`, stateText(piece), piece.node === null ? '' : data.nodes[piece.node],
          piece.used === null ? '' : `${piece.used} of ${piece.offered}`, piece.since === null ? '' : time(piece.since),
          piece.note];
        for (const cell of cells) row.append(make('td', cell));
        body.append(row);
      }
      place.append(table);
      const more = range.pieces.length - TABLE_ROWS;
      if (more > 0) place.append(make('p', `and ${more} more: find a node or an address instead`));
    });
  }

  // A link with a search: #find=10.0.0.5
  const linked = new URLSearchParams(window.location.hash.slice(1)).get('find');
  if (linked) {
    byId('query').value = linked;
    find(linked);
  }
})();
