package node

const bansFile = `
domain: test
descriptors:
  - {key: client, rate_limit: {name: login, window: 10s, requests_per_unit: 3, ban: 60s}}
  - {key: user, rate_limit: {name: per_user, window: 10s, requests_per_unit: 1, ban: 60s, scope: node}}
  - {key: plain, rate_limit: {name: plain, window: 10s, requests_per_unit: 1}}
`
