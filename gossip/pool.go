package gossip

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// The two pools, as Consul has them: LAN within a region, WAN between regions. Cutting the WAN leaves regions whole.
const (
	lan = "lan"
	wan = "wan"
)

// streamTimeout is how long a join or a snapshot may take: less than memberlist's default, so that members beyond a
// partition do not hold up rejoining.
const streamTimeout = 5 * time.Second

// pushPullEvery is how often a node compares its list of members with another one's, which finds members whose arrival
// it missed. memberlist's default on a WAN is a minute; it takes longer with more than 32 members.
const pushPullEvery = 10 * time.Second

// pool is a node's part in one memberlist pool. It is memberlist's delegate for everything.
type pool struct {
	name      string
	cfg       *PoolConfig
	cluster   *Cluster
	conf      memberlist.Config
	transport memberlist.NodeAwareTransport
	list      atomic.Pointer[memberlist.Memberlist]
	joins     atomic.Bool         // the node is in the pool; otherwise its socket serves those who know the address
	wake      chan struct{}       // it has just begun to be, or a seed has gone
	seedGone  atomic.Bool         // a seed that was a member is none any more
	toRejoin  chan struct{}       // a member has failed
	ring      *memberlist.Keyring // nil without keys
	sockets   *sockets            // nil where the configuration has something in their place

	mu      sync.Mutex
	addr    string                  // under which this node is known in the pool
	members map[string]poolMember   // by memberlist's name: the others
	failed  map[string]failedMember // by name: members that went without saying goodbye, to be joined again
	met     bool                    // it has had a member to which it carries frames
	alone   bool                    // it has met nobody, and a seed does not answer: others may admit
	unasked bool                    // not every seed has been tried yet
	reached map[string]bool         // seeds that ever answered
	missing map[string]string       // seeds that never answered, by address: others may admit there
	seeds   map[string]bool         // addresses of seeds
	opened  time.Time

	// Of a node that is not in the pool: whether gateways have passed on what they know, and lack nobody themselves.
	uninformed, gatewayBlind bool
}

// poolMember is a member of the pool and its address. It is recorded when memberlist calls back: memberlist.Members
// returns pointers at what memberlist's goroutines write to.
type poolMember struct {
	Member
	addr string
}

// failedMember is a member that failed, memberlist's name for it, when it failed, and when and how often it was tried.
type failedMember struct {
	poolMember
	boot         string
	since, tried time.Time
	tries        int
}

func openPool(c *Cluster, name string, cfg *PoolConfig) (*pool, error) {
	p := &pool{name: name, cfg: cfg, cluster: c,
		members: make(map[string]poolMember), failed: make(map[string]failedMember), reached: make(map[string]bool),
		seeds: make(map[string]bool), unasked: len(cfg.Seeds) > 0, opened: time.Now(), wake: make(chan struct{}, 1),
		toRejoin: make(chan struct{}, 1)}
	// Whether a node with two pools is a gateway is known when it has met its region. Until then it stays out of the
	// WAN pool, so that nobody who joins it there takes it for one.
	p.uninformed = name == wan && c.cfg.LAN != nil
	p.joins.Store(!p.uninformed)
	conf := memberlist.DefaultWANConfig()
	// A region's gateways may all fail at once. Too few are left then to confirm it: one alone would wait for minutes.
	conf.SuspicionMaxTimeoutMult = 2
	if name == lan {
		conf = memberlist.DefaultLANConfig()
	}
	conf.Name = c.self.poolName()
	conf.Label = c.cfg.Label + "/wan"
	if name == lan {
		conf.Label = c.cfg.Label + "/lan/" + c.self.Region
	}
	conf.EnableCompression = false // frames are dense: it costs CPU and gains little
	conf.UDPBufferSize = 1400
	conf.TCPTimeout = streamTimeout
	conf.PushPullInterval = pushPullEvery
	conf.DeadNodeReclaimTime = 30 * time.Second
	conf.Logger = bridgeLog(c.log, name)
	conf.Delegate, conf.Events, conf.Alive, conf.Conflict = p, p, p, p
	if len(c.cfg.Keys) > 0 {
		ring, err := memberlist.NewKeyring(c.cfg.Keys, c.cfg.Keys[0])
		if err != nil {
			return nil, err
		}
		conf.Keyring, p.ring = ring, ring
	}
	t, err := p.openTransport(conf)
	if err != nil {
		return nil, err
	}
	if name == wan {
		c.self.WAN = finalAddr(conf, t)
	}
	p.transport, conf.Transport = t, keptTransport{t, p}
	p.conf = *conf
	if err := p.create(); err != nil {
		_ = t.Shutdown()
		return nil, err
	}
	return p, nil
}

// keptTransport outlives the memberlist that uses it: a node that leaves a pool keeps its socket. The pool takes notice
// of the streams that it opens.
type keptTransport struct {
	memberlist.NodeAwareTransport
	pool *pool
}

// DialTimeout implements memberlist.Transport.
func (t keptTransport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (t keptTransport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	conn, err := t.NodeAwareTransport.DialAddressTimeout(a, timeout)
	t.pool.noteDial(a.Addr, err)
	return conn, err
}

// Shutdown implements memberlist.Transport.
func (keptTransport) Shutdown() error { return nil }

// create makes a memberlist of this node alone.
func (p *pool) create() error {
	conf := p.conf
	ml, err := memberlist.Create(&conf)
	if err != nil {
		return err
	}
	if ml.NumMembers() == 0 { // Leave, which looks for the node among its members, would panic
		_ = ml.Shutdown()
		return errors.New("the node refused its own metadata, see the log")
	}
	p.list.Store(ml)
	return nil
}

func (p *pool) ml() *memberlist.Memberlist { return p.list.Load() }

// close closes the sockets.
func (p *pool) close() {
	_ = p.transport.Shutdown() // it has no errors but those on closing
	_ = p.ml().Shutdown()
}

// finalAddr is the address that a pool with this configuration advertises; not valid if that cannot be known.
func finalAddr(conf *memberlist.Config, t memberlist.Transport) netip.AddrPort {
	ip, port, err := t.FinalAdvertiseAddr(conf.AdvertiseAddr, conf.AdvertisePort)
	addr, ok := netip.AddrFromSlice(ip)
	if err != nil || !ok {
		return netip.AddrPort{} // memberlist reports the error
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(port))
}

// openTransport returns the pool's sockets, or what the configuration has in their place.
func (p *pool) openTransport(conf *memberlist.Config) (memberlist.NodeAwareTransport, error) {
	if p.cfg.Advertise != "" { // before the sockets are open: on an error nobody would close them
		ip, port, err := resolveAddr(p.cfg.Advertise)
		if err != nil {
			return nil, fmt.Errorf("advertised address: %w", err)
		}
		conf.AdvertiseAddr, conf.AdvertisePort = ip.String(), port
	}
	t := p.cfg.Transport
	if t == nil {
		sockets, err := p.listen(conf)
		if err != nil {
			return nil, err
		}
		t, p.sockets = sockets, sockets
	}
	if wrap := p.cluster.cfg.WrapTransport; wrap != nil {
		t = wrap(p.name, t)
	}
	return t, nil
}

// listen opens the pool's sockets. memberlist takes a name for all addresses of the machine, so it gets an IP address.
func (p *pool) listen(conf *memberlist.Config) (*sockets, error) {
	ip, port, err := resolveAddr(p.cfg.Bind)
	if err != nil {
		return nil, err
	}
	if len(p.cluster.cfg.Keys) == 0 && !ip.IsLoopback() {
		return nil, fmt.Errorf("%s is beyond loopback and needs a key", ip)
	}
	in, err := newInspector(conf.Label, p.cluster.cfg.Keys)
	if err != nil {
		return nil, err
	}
	opened, err := listen(ip, port, conf.Logger, in)
	if err != nil {
		return nil, err
	}
	conf.BindAddr, conf.BindPort = ip.String(), opened.GetAutoBindPort()
	if p.cfg.Advertise == "" {
		conf.AdvertisePort = conf.BindPort
	}
	return opened, nil
}

// resolveAddr returns the IP address and the port behind host:port; no host is every IPv4 address of the machine.
func resolveAddr(addr string) (ip net.IP, port int, err error) {
	host, s, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, 0, err
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return nil, 0, fmt.Errorf("address %s: the port must be a number up to 65535", addr)
	}
	resolved, err := net.ResolveIPAddr("ip", cmp.Or(host, "0.0.0.0"))
	if err != nil {
		return nil, 0, err
	}
	return resolved.IP, int(n), nil
}

// carries reports whether frames to the member go through this pool: nodes of one region reach each other over the LAN.
func (p *pool) carries(m Member) bool {
	return p.name == lan || m.Region != p.cluster.self.Region || p.cluster.cfg.LAN == nil
}

// NodeMeta implements memberlist.Delegate.
func (p *pool) NodeMeta(int) []byte {
	m := p.cluster.Self()
	if p.name == wan {
		m.Gateway = p.joins.Load()
	}
	return m.encode()
}

// NotifyMsg implements memberlist.Delegate: a frame came.
func (p *pool) NotifyMsg(b []byte) { p.cluster.receive(p.name, b) }

// GetBroadcasts implements memberlist.Delegate: memberlist's broadcast queue is not the data plane.
func (p *pool) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate: comparisons of lists of members are about these only. Counts go to
// members, see recency.
func (p *pool) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate.
func (p *pool) MergeRemoteState([]byte, bool) {}

// errNoGateway keeps a node out of the WAN pool, without a line in the log.
var errNoGateway = errors.New("no gateway")

var errOtherVersion = errors.New("another protocol version")

// NotifyAlive implements memberlist.AliveDelegate: members that do not say who they are stay out, and so does who is no
// gateway.
func (p *pool) NotifyAlive(n *memberlist.Node) error {
	m, err := decodeMember(n.Meta)
	if err != nil {
		p.cluster.log.Warn("gossip: refused a member whose metadata cannot be read", "pool", p.name, "name", n.Name,
			"addr", n.Address(), "error", err)
		return err
	}
	if !m.speaks() {
		p.cluster.log.Warn("gossip: refused a member of another protocol version; upgrade one version at a time",
			"pool", p.name, "name", n.Name, "addr", n.Address(), "from", m.MinVersion, "to", m.MaxVersion,
			"own", protocolVersion)
		return errOtherVersion
	}
	if n.Name != p.conf.Name && (!p.joins.Load() || p.name == wan && !m.Gateway) {
		return errNoGateway
	}
	return nil
}

// NotifyConflict implements memberlist.ConflictDelegate: one boot at two addresses, as of a machine cloned while
// running.
func (p *pool) NotifyConflict(existing, other *memberlist.Node) {
	p.cluster.log.Error("gossip: one boot of a node at two addresses; start the copy anew",
		"pool", p.name, "name", existing.Name, "addr", existing.Address(), "other", other.Address())
}

// NotifyUpdate implements memberlist.EventDelegate: a member changed its metadata.
func (p *pool) NotifyUpdate(n *memberlist.Node) { p.NotifyJoin(n) }

// NotifyJoin implements memberlist.EventDelegate.
func (p *pool) NotifyJoin(n *memberlist.Node) {
	m, err := decodeMember(n.Meta)
	if err != nil {
		return
	}
	p.mu.Lock()
	if m.Origin() == p.cluster.self.Origin() {
		p.addr = n.Address()
		p.mu.Unlock()
		return
	}
	p.members[n.Name] = poolMember{m, n.Address()}
	p.mu.Unlock()
	if p.carries(m) {
		p.cluster.arrived(&route{member: m, pool: p, node: *n, addr: n.Address()})
	}
}

// NotifyLeave implements memberlist.EventDelegate.
func (p *pool) NotifyLeave(n *memberlist.Node) {
	m, err := decodeMember(n.Meta)
	if err != nil || m.Origin() == p.cluster.self.Origin() {
		return
	}
	again := p.isMember(m) && !p.cluster.replaced(m) && !p.cluster.isListed(m)
	p.mu.Lock()
	delete(p.members, n.Name)
	if again {
		p.noteFailed(failedMember{poolMember: poolMember{m, n.Address()}, boot: n.Name, since: time.Now()})
	}
	if p.seeds[n.Address()] {
		p.seedGone.Store(true)
		p.awake()
	}
	p.mu.Unlock()
	if p.carries(m) {
		p.cluster.gone(m, p)
	}
}

// awake ends a pause of the loop that joins seeds.
func (p *pool) awake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// noteSeed records where a seed may be. The addresses of a name change: of too many, the earlier ones are forgotten.
func (p *pool) noteSeed(addrs []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.seeds) > maxFailed {
		clear(p.seeds)
	}
	for _, a := range addrs {
		p.seeds[a] = true
	}
}

// noteUnanswered records which seeds did not answer. A pool that has met nobody is blind while that lasts. One that has
// met somebody is blind, too: a part of the cluster may be partitioned off from everybody here; but seeds that do not
// answer for forgetSilent are taken to be gone for good, as members that became unreachable are.
func (p *pool) noteUnanswered(unanswered map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	failed := slices.Collect(maps.Values(unanswered))
	for _, seed := range p.cfg.Seeds {
		p.reached[seed] = p.reached[seed] || !slices.Contains(failed, seed)
	}
	p.alone, p.unasked = !p.met && len(unanswered) > 0, false
	p.missing = unanswered
	maps.DeleteFunc(p.missing,
		func(_, seed string) bool { return p.reached[seed] || time.Since(p.opened) > forgetSilent })
	for _, m := range p.members { // one may have come since it was tried
		if _, missing := p.missing[m.addr]; missing && p.isMember(m.Member) {
			delete(p.missing, m.addr)
		}
	}
}

// isMember reports whether a node of the pool is a member of the cluster.
func (p *pool) isMember(m Member) bool { return p.cluster.isMember(m.Origin()) }

// isBlind reports whether there may be nodes that nobody here knows.
func (p *pool) isBlind() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.joins.Load() {
		return p.uninformed || p.gatewayBlind
	}
	return p.unasked || p.alone || len(p.missing) > 0
}

// isAlone reports whether nobody has been met, and others may be there.
func (p *pool) isAlone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.joins.Load() {
		return p.uninformed
	}
	return p.unasked || p.alone
}

// hasMet reports whether somebody has been met.
func (p *pool) hasMet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.met
}

// others returns the members that memberlist holds to be alive, and this node's own address.
func (p *pool) others() (members []poolMember, self string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.members)), p.addr
}

// Refused counts the streams and packets that were not passed to memberlist: from senders without a key, or too many.
func (c *Cluster) Refused() (streams, packets uint64) {
	for _, p := range c.pools {
		if p.sockets != nil {
			streams += p.sockets.refusedStreams.Load()
			packets += p.sockets.refusedPackets.Load()
		}
	}
	return streams, packets
}
