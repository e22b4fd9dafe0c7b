-- Sliding-window counter: number of the newest sub-window, void, counts from the oldest to the newest sub-window: one more than a window
-- has, as the oldest is leaving. Of its count, the part that is still in the window counts, rounded up, less one, and at least what exceeds
-- an even share of the limit. a: length of a sub-window; b: sub-windows in a window.

-- muldiv returns floor(a * b / m) and whether there is a remainder, for a * b / m < 2^52. Where the product is no exact double, it has two:
-- Dekker, A floating-point technique for extending the available precision.
local function muldiv(a, b, m)
	local p = a * b
	local q = floor(p / m)
	if p < 9007199254740992 then
		return q, q * m < p
	end
	local function product(x, y)
		local s, t = 134217729 * x, 134217729 * y
		local xh, yh = s - (s - x), t - (t - y)
		local xl, yl = x - xh, y - yh
		local hi = x * y
		return hi, ((xh * yh - hi) + xh * yl + xl * yh) + xl * yl
	end
	local hi, lo = product(a, b)
	local hi2, lo2 = product(q, m)
	local rest = (hi - hi2) + (lo - lo2)
	while rest < 0 do
		q, rest = q - 1, rest + m
	end
	while rest >= m do
		q, rest = q + 1, rest - m
	end
	return q, rest > 0
end

local function load(key, aux, layer, state)
	local sub, n = layer.a, layer.b
	local index, back, void, records, ring = floor(now / sub), 0, 0, ''
	local off = now - index * sub
	if state then
		ring = {unpack_('<' .. string.rep('d', n + 3), state)}
		ring[n + 4] = nil
		local by = index - ring[1]
		if by < -n then -- far ahead: all counts move to now
			local sum = 0
			for i = 3, n + 3 do
				sum = sum + ring[i]
				ring[i] = 0
			end
			ring[n + 3] = sum
		else
			void, records = ring[2], string.sub(state, 8 * n + 25)
			if by < 0 then
				index, off, back = ring[1], 0, ring[1] * sub - now
			elseif by > 0 then
				for i = 3, n + 3 do
					ring[i] = i + by <= n + 3 and ring[i + by] or 0
				end
			end
		end
		ring[1] = index
	else
		ring = {index, 0}
		for i = 3, n + 3 do
			ring[i] = 0
		end
	end
	local inner = 0
	for i = 4, n + 3 do
		inner = inner + ring[i]
	end
	return {key = key, aux = aux, back = back, void = void, records = records, sub = sub, n = n, off = off, ring = ring,
		inner = inner}
end

local function beyond(cell, layer, count)
	return count - ceil(layer.max / cell.n)
end

local function used(cell, layer)
	local oldest = cell.ring[3]
	if oldest == 0 then
		return cell.inner
	end
	local part, rest = muldiv(oldest, cell.sub - cell.off, cell.sub)
	return cell.inner + math.max(part - (rest and 0 or 1), beyond(cell, layer, oldest))
end

-- stays is how much of a sub-window's length may still be in the window for its count to fit into room.
local function stays(cell, layer, count, room)
	if count <= room then
		return cell.sub
	end
	if beyond(cell, layer, count) > room then
		return 0
	end
	return (muldiv(room + 1, cell.sub, count))
end

-- roomAfter is the shortest wait until there is room: it goes through the sub-windows in the order in which they leave.
local function roomAfter(cell, layer, room)
	local ring, sub, n = cell.ring, cell.sub, cell.n
	local rest = cell.inner
	for j = 0, n do
		local count = ring[3 + j]
		if rest <= room then
			local left = stays(cell, layer, count, room - rest)
			if left > 0 then
				return (j + 1) * sub - left - cell.off + cell.back
			end
		end
		rest = rest - (ring[4 + j] or 0)
	end
	return (n + 1) * sub - cell.off + cell.back
end

local function reset(cell, layer)
	if used(cell, layer) == 0 then
		return 0
	end
	local newest = cell.n
	while cell.ring[3 + newest] == 0 do
		newest = newest - 1
	end
	return (newest + 1) * cell.sub - stays(cell, layer, cell.ring[3 + newest], 0) - cell.off + cell.back
end

local function decide(cell, layer, cost, before)
	local seen, max, wait = used(cell, layer) + before, layer.max, 0
	local asked = cost > 0 and cost or 1
	local allowed = asked <= max and seen <= max - asked
	if not allowed then
		wait = asked + before > max and -1 or roomAfter(cell, layer, max - asked - before)
	end
	return allowed, seen < max and max - seen or 0, wait
end

local function charge(cell, layer, cost)
	cell.ring[cell.n + 3] = cell.ring[cell.n + 3] + cost
	cell.inner = cell.inner + cost
end

-- A lease ends with the (sub-)window that it is charged in.
local function lease(cell, layer, lasts)
end

local function refund(cell, layer, cost, time)
	local at = cell.n + 3 - (cell.ring[1] - floor(time / cell.sub))
	if at >= 3 and at <= cell.n + 3 then
		cost = math.min(cost, cell.ring[at])
		cell.ring[at] = cell.ring[at] - cost
		if at > 3 then
			cell.inner = cell.inner - cost
		end
	end
end

local function save(cell)
	cell.ring[2] = cell.void
	return pack('<' .. string.rep('d', cell.n + 3), unpack(cell.ring, 1, cell.n + 3)), (cell.n + 1) * cell.sub
end

return load, decide, charge, reset, save, used, refund, lease
