-- Token and leaky buckets, and the queue: GCRA. Time of the last charge, void, debt at that time, unit. A debt of 1 token is `unit`, and each
-- microsecond pays b of it: unit / b is the time that a token takes, in lowest terms. a: unit; b: pace; c: window.
local function load(key, aux, layer, state)
	local unit, pace = layer.a, layer.b
	local time, debt, back, void, records = now, 0, 0, 0, ''
	if state then
		local last, was
		last, void, debt, was = unpack_('<dddd', state)
		if was ~= unit then -- the rule was edited: the tokens stay
			debt = ceil(debt / was * unit)
		end
		if last <= now then
			debt = debt - (now - last) * pace
			if debt < 0 then
				debt = 0
			end
			records = string.sub(state, 33)
		elseif last - now <= layer.c then
			back, time = last - now, last
			records = string.sub(state, 33)
		else
			void = 0
		end
	end
	return {key = key, aux = aux, back = back, void = void, records = records, pace = pace, unit = unit, debt = debt, time = time}
end

-- adopt has the debt in units of another limit on the same count.
local function adopt(cell, layer)
	if cell.unit ~= layer.a then
		cell.debt = ceil(cell.debt / cell.unit * layer.a)
	end
	cell.unit, cell.pace = layer.a, layer.b
end

local function used(cell)
	return ceil(cell.debt / cell.unit)
end

local function decide(cell, layer, cost, before)
	if cell.unit ~= layer.a or cell.pace ~= layer.b then
		adopt(cell, layer)
	end
	local max, unit, pace, wait = layer.max, cell.unit, cell.pace, 0
	local asked, full = cost > 0 and cost or 1, max * unit
	local debt, take = cell.debt + before * unit, asked * unit
	local allowed = asked <= max and debt + take <= full
	if not allowed then
		wait = -1
		if asked <= max and before * unit + take <= full then
			wait = ceil((debt + take - full) / pace) + cell.back
		end
	elseif layer.number == 6 and debt > 0 then
		wait = ceil(debt / pace) + cell.back
	end
	return allowed, debt < full and floor((full - debt) / unit) or 0, wait
end

local function reset(cell)
	return cell.debt > 0 and ceil(cell.debt / cell.pace) + cell.back or 0
end

local function charge(cell, layer, cost)
	adopt(cell, layer)
	cell.debt = cell.debt + cost * cell.unit
end

-- A lease is charged as of its end: what is refilled until then is not there for others. So for all times a < b, what is used from a to b is
-- at most the capacity and the refill from a to b: see Leases in DESIGN.md.
local function lease(cell, layer, lasts)
	cell.debt = math.max(cell.debt, math.min(lasts * cell.pace, layer.max * cell.unit))
end

-- Without the charge, the bucket might have been full at times since `time`. What is left of the charge in its debt is at least the cost less
-- all that was paid since. Where nodes take leases, what is refilled during one stays: a later lease may rely on its having been there, see
-- lease.go. Requests of a queue have their turns: it gives back that of the last one only, or two would have the same.
local function refund(cell, layer, cost, time)
	adopt(cell, layer)
	if layer.number ~= 6 then
		local gone = math.max(0, cell.time - time) + layer.lasts
		cell.debt = cell.debt - math.max(0, math.min(cell.debt, cost * cell.unit - gone * cell.pace))
	elseif string.sub(cell.records, -recordSize, -recordSize + 7) == layer.token then
		cell.debt = math.max(0, cell.debt - cost * cell.unit)
	end
end

local function save(cell)
	return pack('<dddd', cell.time, cell.void, cell.debt, cell.unit), ceil(cell.debt / cell.pace)
end

return load, decide, charge, reset, save, used, refund, lease
