-- Publishes a version of a document if what is in force is as expected.
-- KEYS: the version in force, the descriptions by version, the texts by version.
-- ARGV: what has to be in force, or "older" for any older version; version; "version sha256"; description; text;
--       how many versions to keep; how many bytes of their texts; channel.
-- Returns 1, or 0 and what is in force.
local current = redis.pcall('GET', KEYS[1]) or ''
if type(current) == 'table' then
  if not string.find(current.err, 'WRONGTYPE', 1, true) then
    return current
  end
  current = '' -- garbage of another type, which SET replaces
end
local digits, hash = string.match(current, '^([1-9]%d*) ([0-9a-f]+)$')
local at = digits and #hash == 64 and tonumber(digits) or 0
if at > 9007199254740992 then -- no edgelimit has written that
  at = 0
end
local version = tonumber(ARGV[2])
if ARGV[1] == 'older' then
  if at > version or (at == version and current ~= ARGV[3]) then
    return {0, current}
  end
elseif current ~= ARGV[1] or at >= version then
  return {0, current}
end
redis.call('PUBLISH', ARGV[8], ARGV[3]) -- first: without the right to it nothing is written
redis.call('HSET', KEYS[2], ARGV[2], ARGV[4])
redis.call('HSET', KEYS[3], ARGV[2], ARGV[5])
redis.call('SET', KEYS[1], ARGV[3])

local all = redis.call('HKEYS', KEYS[2])
table.sort(all, function(a, b) return (tonumber(a) or 0) > (tonumber(b) or 0) end)
local size = 0
for i, v in ipairs(all) do
  size = size + redis.call('HSTRLEN', KEYS[3], v)
  if v ~= ARGV[2] and (i > tonumber(ARGV[6]) or size > tonumber(ARGV[7])) then
    redis.call('HDEL', KEYS[2], v)
    redis.call('HDEL', KEYS[3], v)
  end
end
return {1, ARGV[3]}
