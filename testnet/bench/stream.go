package main

import (
	"math/rand/v2"
	"strconv"

	"github.com/dchest/siphash"
)

// million is the number of keys of the cold workloads.
const million = 1_000_000

// stream is a sequence of requests: an identity each, and the key that edgelimit hashes it to. The identities lie in
// memory in the order of the requests, as if each had just come from a socket: reading them misses no cache. It holds
// no pointers, so that the garbage collector ignores it.
type stream struct {
	text  string
	start []uint32 // of each identity in text, and the end of the last
	keys  []uint64
	// dependent has the next request be known only after the decision on the one before, as where the work of a server
	// comes between them: the processor cannot wait for the memory of several at a time.
	dependent bool
}

func (s *stream) len() int { return len(s.keys) }

func (s *stream) identity(i int) string {
	return s.text[s.start[i]:s.start[i+1]]
}

// newStream returns the requests of the clients with these numbers, in order.
func newStream(clients []uint32) *stream {
	s := &stream{start: make([]uint32, len(clients)+1), keys: make([]uint64, len(clients))}
	text := make([]byte, 0, 16*len(clients))
	for i, c := range clients {
		text = appendIdentity(text, c)
		s.start[i+1] = uint32(len(text))
		s.keys[i] = hashIdentity(string(text[s.start[i]:]))
	}
	s.text = string(text)
	return s
}

// appendIdentity appends the address of a client, which no other client has.
func appendIdentity(b []byte, client uint32) []byte {
	ip := client * 2654435761 // odd: a permutation of all addresses
	for i := range 4 {
		if i > 0 {
			b = append(b, '.')
		}
		b = strconv.AppendUint(b, uint64(ip>>(24-8*i)&0xff), 10)
	}
	return b
}

const secret0, secret1 = 0x0706050403020100, 0x0f0e0d0c0b0a0908

// hashIdentity hashes an identity as a node does, without an allocation.
func hashIdentity(identity string) uint64 {
	var stack [256]byte
	b := append(stack[:0], byte(len(identity))) // its length as a uvarint: below 128
	return siphash.Hash(secret0, secret1, append(b, identity...))
}

// upTo returns the clients from..to-1.
func upTo(from, to int) []uint32 {
	clients := make([]uint32, 0, to-from)
	for c := from; c < to; c++ {
		clients = append(clients, uint32(c))
	}
	return clients
}

// hot is one client with all requests.
func hot() []uint32 { return make([]uint32, 1024) }

// some is the n-th set of 1024 clients, which stay in the caches, in random order.
func some(n int) []uint32 {
	clients := upTo(n*1024, (n+1)*1024)
	swap := func(i, j int) { clients[i], clients[j] = clients[j], clients[i] }
	rand.New(rand.NewPCG(1, uint64(n))).Shuffle(len(clients), swap)
	return clients
}

// uniform draws n requests from a million clients, uniformly.
func uniform(n int) []uint32 {
	r := rand.New(rand.NewPCG(2, 0))
	clients := make([]uint32, n)
	for i := range clients {
		clients[i] = r.Uint32N(million)
	}
	return clients
}

// zipf draws n requests from a million clients: the k-th most frequent has a share proportional to 1/k^1.1.
func zipf(n int) []uint32 {
	r := rand.New(rand.NewPCG(3, 0))
	z := rand.NewZipf(r, 1.1, 1, million-1)
	names := r.Perm(million) // so that frequent clients are not neighbors in memory
	clients := make([]uint32, n)
	for i := range clients {
		clients[i] = uint32(names[z.Uint64()])
	}
	return clients
}
