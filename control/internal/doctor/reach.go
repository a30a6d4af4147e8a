package doctor

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"deeplink/control/internal/edgeclient"
	"deeplink/control/internal/store"
	"deeplink/migrations"
	"deeplink/shared/bus"
	"deeplink/shared/feed"
	"deeplink/shared/postgres"
	"deeplink/shared/release"
)

// insufficientPrivilege is the SQLSTATE of a statement that the role may not run.
const insufficientPrivilege = "42501"

func (d *examiner) migrations() {
	ctx, cancel := d.bounded()
	defer cancel()
	const check, migrate = "migrations", "run control migrate of this version, as the owner"
	known, err := migrations.Versions()
	if err != nil {
		d.fails(check, err)
		return
	}
	applied, err := d.store.Migrated(ctx)
	if err != nil {
		if code := postgres.Code(err); code == insufficientPrivilege || code == "42P01" {
			d.add(Error, check, "this role cannot read which migrations were applied", migrate+": it grants that")
			return
		}
		d.fails(check, err)
		return
	}
	missing := without(known, applied)
	newer := without(applied, known)
	switch {
	case len(missing) > 0:
		d.add(Error, check, fmt.Sprintf("the database lacks %v", missing), migrate)
	case len(newer) > 0:
		d.add(Warning, check, fmt.Sprintf("the database has %v, which this control does not know", newer), "use the control that applied them; this one is older")
	default:
		d.ok(check, fmt.Sprintf("all %d are applied", len(known)))
	}
}

// without returns the elements of all that are not among others.
func without(all, others []int64) []int64 {
	return slices.DeleteFunc(slices.Clone(all), func(v int64) bool { return slices.Contains(others, v) })
}

// redis checks the Redis that carries hints and counts requests.
func (d *examiner) redis() {
	client, err := bus.Open(string(d.options.RedisURL))
	if err != nil {
		d.add(Error, "redis", err.Error(), "check REDIS_URL")
		return
	}
	defer client.Close()
	ctx, cancel := d.bounded()
	defer cancel()
	began := time.Now()
	if err := client.Ping(ctx).Err(); err != nil {
		d.add(Error, "redis", err.Error(), "check REDIS_URL and that Redis runs; until then changes take some 0.3 s and each control counts requests on its own")
		return
	}
	d.ok("redis", fmt.Sprintf("responds in %v", time.Since(began).Round(time.Millisecond)))
	d.pubsub(ctx, client)
	d.state(ctx, client)
}

// pubsub publishes an acknowledgement for which no call waits, on the channel that controls subscribe to, and receives it.
func (d *examiner) pubsub(ctx context.Context, client redis.UniversalClient) {
	probe := string(feed.Ack{ID: math.MaxInt64, Slot: "doctor", Incarnation: uuid.NewString()}.Encode())
	err := receives(ctx, client, probe)
	if err != nil {
		d.add(Error, "redis pub/sub", err.Error(), "let the user of REDIS_URL publish to and subscribe to deeplink:*; several servers need redis+sentinel:// or redis+cluster://")
		return
	}
	d.ok("redis pub/sub", "published messages arrive")
}

func receives(ctx context.Context, client redis.UniversalClient, probe string) error {
	sub := client.Subscribe(ctx, feed.Acks)
	defer sub.Close()
	if _, err := sub.ReceiveTimeout(ctx, queryTimeout); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	if err := client.Publish(ctx, feed.Acks, probe).Err(); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	// Acknowledgements of edges may come in between.
	for {
		message, err := sub.ReceiveTimeout(ctx, queryTimeout)
		if err != nil {
			return fmt.Errorf("the message did not arrive: %w", err)
		}
		if m, ok := message.(*redis.Message); ok && m.Payload == probe {
			return nil
		}
	}
}

// state checks that Redis is a primary, and whether it evicts keys or fails to save. It then forgets counts or refuses writes.
func (d *examiner) state(ctx context.Context, client redis.UniversalClient) {
	const check = "redis state"
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		d.stateOf(ctx, check, client, "standalone")
		return
	}
	if text, err := cluster.ClusterInfo(ctx).Result(); err != nil || infoOf(text)["cluster_state"] != "ok" {
		d.add(Error, check, "the Cluster does not serve every slot", "check CLUSTER INFO: commands for the other slots fail")
	}
	var mu sync.Mutex
	nodes := make(map[string]*redis.Client)
	// ForEachMaster calls the function concurrently.
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes[node.Options().Addr] = node
		return node.Ping(ctx).Err()
	})
	if err != nil {
		d.add(Error, check, err.Error(), "check that control reaches every primary of the Cluster at the address that the Cluster announces")
		return
	}
	for _, addr := range slices.Sorted(maps.Keys(nodes)) {
		d.stateOf(ctx, check+" of "+addr, nodes[addr], "cluster")
	}
}

// stateOf checks one server, which must have the mode.
func (d *examiner) stateOf(ctx context.Context, check string, client redis.UniversalClient, mode string) {
	text, err := client.Info(ctx).Result()
	if err != nil {
		d.add(Warning, check, err.Error(), "let the user of REDIS_URL run INFO, or check the server by hand")
		return
	}
	info := infoOf(text)
	policy := info["maxmemory_policy"]
	switch {
	case info["redis_mode"] == "sentinel":
		d.add(Error, check, "this is a Sentinel", "name it as one in REDIS_URL: redis+sentinel://...?master_name=NAME")
	case info["redis_mode"] == "cluster" && mode != "cluster":
		d.add(Error, check, "this is one node of a Cluster", "name the Cluster in REDIS_URL, redis+cluster://...: one node has only a part of the counts")
	case info["role"] == "slave":
		d.add(Error, check, "this is a replica", "name the primary in REDIS_URL: a replica is read-only")
	case info["maxmemory"] != "0" && policy != "noeviction" && info["evicted_keys"] != "0":
		d.add(Warning, check, info["evicted_keys"]+" keys were evicted ("+policy+")", "give Redis more memory: without the counts, clients may exceed their limits")
	case info["rdb_last_bgsave_status"] == "err" || info["aof_last_write_status"] == "err":
		d.add(Warning, check, "it cannot save, and may refuse writes because of that", "switch saving off (save \"\", appendonly no): no data in it needs to survive a restart")
	case info["aof_enabled"] == "1":
		d.add(Warning, check, "it writes an append-only file", "switch it off (appendonly no): no data in it needs to survive a restart, and writes wait for the disk")
	default:
		d.ok(check, fmt.Sprintf("maxmemory %s, %s", info["maxmemory_human"], policy))
	}
}

// infoOf parses the result of INFO.
func infoOf(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			info[name] = value
		}
	}
	return info
}

const (
	// watchEvery is the pause between two reads of the table edges, and watchAtMost bounds how long to watch it.
	watchEvery, watchAtMost = 100 * time.Millisecond, 5 * time.Second
	// maxConcurrent bounds the concurrent requests to edges.
	maxConcurrent = 16
)

// edges watches the rows of the table edges for the length of a lease, and sends a request to each edge.
func (d *examiner) edges() {
	ctx, cancel := context.WithTimeout(d.ctx, watchAtMost+queryTimeout)
	defer cancel()
	first, still, shared, err := d.watch(ctx)
	switch {
	case err != nil:
		d.fails("edges", err)
		return
	case len(first) == 0:
		d.add(Warning, "edges", "none is registered", "start one; without an edge no short URL resolves")
		return
	}
	if len(still) > 0 {
		d.add(Error, "edge leases", "not renewed: "+strings.Join(still, ", "),
			"check that these edges run and reach Postgres; control deletes the rows of dead edges, and changes wait for them until then")
	} else {
		d.ok("edge leases", fmt.Sprintf("all %d are renewed", len(first)))
	}
	if shared = append(shared, sameAddress(first)...); len(shared) > 0 {
		d.add(Error, "edge slots", strings.Join(shared, "; "), "give each edge an EDGE_SLOT and an address of its own")
	} else {
		d.ok("edge slots", "each is held by one edge")
	}
	d.releases(first)
	d.visit(ctx, slices.DeleteFunc(first, func(e store.EdgeRow) bool { return slices.Contains(still, e.Slot) }))
}

// releases compares the releases of the edges and of this control, as far as they are known.
func (d *examiner) releases(edges []store.EdgeRow) {
	const check = "releases"
	slots := make(map[string][]string)
	for _, e := range edges {
		if e.Release != "" {
			slots[e.Release] = append(slots[e.Release], e.Slot)
		}
	}
	if own := release.Version(); own != "" {
		slots[own] = append(slots[own], "this control")
	}
	var found []string
	for _, name := range slices.Sorted(maps.Keys(slots)) {
		found = append(found, name+": "+strings.Join(slots[name], ", "))
	}
	switch len(found) {
	case 0:
		d.ok(check, "unknown")
	case 1:
		d.ok(check, "all known: "+found[0])
	default:
		d.add(Warning, check, strings.Join(found, "; "), "complete the upgrade, or roll it back")
	}
}

// watch returns the rows, the slots whose rows were not renewed for the length of their lease, and errors about slots.
func (d *examiner) watch(ctx context.Context) (first []store.EdgeRow, still, shared []string, err error) {
	if first, err = d.store.EdgeRows(ctx); err != nil {
		return nil, nil, nil, err
	}
	began := time.Now()
	waiting := make(map[string]store.EdgeRow)
	for _, e := range first {
		waiting[e.Slot] = e
	}
	for len(waiting) > 0 {
		select {
		case <-ctx.Done():
			return nil, nil, nil, ctx.Err()
		case <-time.After(watchEvery):
		}
		looked := time.Since(began)
		rows, err := d.store.EdgeRows(ctx)
		if err != nil {
			return nil, nil, nil, err
		}
		for _, e := range rows {
			before, there := waiting[e.Slot]
			switch {
			case !there:
			case e.Incarnation != before.Incarnation:
				shared = append(shared, "slot "+e.Slot+" changed its edge during the check")
				delete(waiting, e.Slot)
			case e.Renewals != before.Renewals:
				delete(waiting, e.Slot)
			case looked > min(max(e.Lease, 4*feed.PollEvery), watchAtMost):
				still = append(still, e.Slot)
				delete(waiting, e.Slot)
			}
		}
		for slot := range waiting {
			if !slices.ContainsFunc(rows, func(e store.EdgeRow) bool { return e.Slot == slot }) {
				delete(waiting, slot) // the edge deregistered
			}
		}
	}
	slices.Sort(still)
	return first, still, shared, nil
}

// sameAddress returns the pairs of slots that have the same address.
func sameAddress(rows []store.EdgeRow) (shared []string) {
	slots := make(map[string]string)
	for _, e := range rows {
		if other, taken := slots[e.Address]; taken && e.Address != "" {
			shared = append(shared, fmt.Sprintf("slots %s and %s are both at %s", other, e.Slot, e.Address))
		}
		slots[e.Address] = e.Slot
	}
	return shared
}

// visit requests the version from each edge.
func (d *examiner) visit(ctx context.Context, edges []store.EdgeRow) {
	var mu sync.Mutex
	var lost, other []string
	var group errgroup.Group
	group.SetLimit(maxConcurrent)
	v := edgeclient.New(d.options.LinkBaseURL)
	asked := 0
	for _, e := range edges {
		if e.Address == "" {
			continue
		}
		asked++
		group.Go(func() error {
			spoken, err := v.Version(ctx, e.Address)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				lost = append(lost, fmt.Sprintf("%s at %s (%v)", e.Slot, e.Address, err))
			} else if spoken != edgeclient.Version {
				other = append(other, fmt.Sprintf("%s has %s", e.Slot, spoken))
			}
			return nil
		})
	}
	_ = group.Wait() // no visit fails the group
	slices.Sort(lost)
	slices.Sort(other)
	if len(lost) > 0 {
		d.add(Error, "edge addresses", "not reached: "+strings.Join(lost, ", "), "check EDGE_ADVERTISE and the network from control to the edges: the canary needs it, clicks do not")
	} else {
		d.ok("edge addresses", fmt.Sprintf("%d of %d have an address and respond", asked, len(edges)))
	}
	if len(other) > 0 {
		d.add(Warning, "edge versions", strings.Join(other, ", ")+"; control has "+edgeclient.Version, "upgrade the older programs")
	} else if asked > len(lost) {
		d.ok("edge versions", "all have "+edgeclient.Version)
	}
}
