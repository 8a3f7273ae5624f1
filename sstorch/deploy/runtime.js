// ---- reading

function _value(patient, column) {
  const value = patient[column];
  const empty = value === undefined || value === null || value === "" || Number.isNaN(value);
  return empty ? null : value;
}

function _number(patient, column, missing) {
  const value = _value(patient, column);
  if (value === null) return missing;
  const number = Number(value);
  if (Number.isNaN(number)) throw new Error(`${column} must be a number, got ${value}`);
  return number;
}

function _rank(values, x) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x < values[middle]) high = middle; else low = middle + 1;
  }
  return low;
}

function _label(patient, column) {
  const value = _value(patient, column);
  if (value === null) return null;
  return value === true ? "True" : value === false ? "False" : String(value);
}
// ---- check

function _check(patient) {
  for (const [column, categories] of Object.entries(_COLUMNS)) {
    if (!(column in patient)) {
      throw new Error(`the patient has no column ${column}, got ${Object.keys(patient).join(", ")}: correct `
        + "the name, or give null where the value is unknown");
    }
    const label = _label(patient, column);
    if (categories.length && label !== null && !categories.includes(label)) {
      throw new Error(`${column} must be one of ${categories.join(", ")}, got ${label}: correct the `
        + "category, or give null where it is unknown");
    }
  }
}
// ---- quadrature

const _EDGES = @EDGES@;
const _RULE = @RULE@;

// Integrals of hazard times survival up to a time: in each panel the causes share what survival loses.
function _integrals(at, time) {
  const found = new Array(@CAUSES@).fill(0);
  if (!(time > 0)) return found;
  const end = Math.log(time), below = _EDGES.filter((edge) => edge < end);
  const edges = below.length ? [...below, end] : [end - @WIDTH@, end];
  let alive = 1;
  for (let panel = 1; panel < edges.length; panel++) {
    const left = edges[panel - 1], right = edges[panel];
    const density = _RULE.map(([place]) => {
      const logTime = left + (right - left) / 2 * (1 + place);
      const hazards = at(Math.exp(logTime)), total = hazards.pop();
      return hazards.map((hazard) => hazard - total + logTime);
    });
    const largest = Math.max(-1e300, ...density.flat());
    const masses = new Array(@CAUSES@).fill(0);
    density.forEach((logs, i) => logs.forEach((each, k) => {
      masses[k] += _RULE[i][1] * Math.exp(each - largest);
    }));
    const whole = masses.reduce((sum, mass) => sum + mass, 0);
    const later = Math.exp(-at(Math.exp(right))[@CAUSES@]), lost = Math.max(alive - later, 0);
    masses.forEach((mass, k) => { found[k] += (whole > 0 ? mass / whole : 1 / @CAUSES@) * lost; });
    alive = later;
  }
  return found;
}
