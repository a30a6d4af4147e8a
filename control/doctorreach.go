package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"deeplink/control/internal/store"
	"deeplink/migrations"
	"deeplink/shared/bus"
	"deeplink/shared/feed"
	"deeplink/shared/postgres"
	"deeplink/shared/release"
)

// insufficientPrivilege is how a statement fails that the role may not run.
const insufficientPrivilege = "42501"

func (d *doctor) migrations() {
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
			d.add(checkError, check, "this role cannot see which there are", migrate+": it grants that")
			return
		}
		d.fails(check, err)
		return
	}
	missing := without(known, applied)
	newer := without(applied, known)
	switch {
	case len(missing) > 0:
		d.add(checkError, check, fmt.Sprintf("the database lacks %v", missing), migrate)
	case len(newer) > 0:
		d.add(checkWarning, check, fmt.Sprintf("the database has %v, which this control does not know", newer), "use the control that made them; this one is older")
	default:
		d.ok(check, fmt.Sprintf("all %d are there", len(known)))
	}
}

// without returns the elements of all that are not among others.
func without(all, others []int64) []int64 {
	return slices.DeleteFunc(slices.Clone(all), func(v int64) bool { return slices.Contains(others, v) })
}

// redis looks at the Redis of hints and counts.
func (d *doctor) redis() {
	client, err := bus.Open(string(d.command.RedisURL))
	if err != nil {
		d.add(checkError, "redis", err.Error(), "see REDIS_URL")
		return
	}
	defer client.Close()
	ctx, cancel := d.bounded()
	defer cancel()
	began := time.Now()
	if err := client.Ping(ctx).Err(); err != nil {
		d.add(checkError, "redis", err.Error(), "see REDIS_URL and that Redis runs; until then changes take some 0.3 s and each control counts requests alone")
		return
	}
	d.ok("redis", fmt.Sprintf("answers in %v", time.Since(began).Round(time.Millisecond)))
	d.pubsub(ctx, client)
	d.state(ctx, client)
}

// pubsub sends an acknowledgement that nobody waits for and hears it, on the channel that controls hear.
func (d *doctor) pubsub(ctx context.Context, client redis.UniversalClient) {
	probe := string(feed.Ack{ID: math.MaxInt64, Slot: "doctor", Incarnation: uuid.NewString()}.Encode())
	err := heard(ctx, client, probe)
	if err != nil {
		d.add(checkError, "redis pub/sub", err.Error(), "let the user of REDIS_URL publish to and subscribe to deeplink:*; several servers need redis+sentinel:// or redis+cluster://")
		return
	}
	d.ok("redis pub/sub", "what is published is heard")
}

func heard(ctx context.Context, client redis.UniversalClient, probe string) error {
	sub := client.Subscribe(ctx, feed.Acks)
	defer sub.Close()
	if _, err := sub.ReceiveTimeout(ctx, doctorTimeout); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	if err := client.Publish(ctx, feed.Acks, probe).Err(); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	// Acknowledgements of edges may come in between.
	for {
		message, err := sub.ReceiveTimeout(ctx, doctorTimeout)
		if err != nil {
			return fmt.Errorf("nothing is heard: %w", err)
		}
		if m, ok := message.(*redis.Message); ok && m.Payload == probe {
			return nil
		}
	}
}

// state looks at whether it is a primary, and at what Redis does when it is full, or cannot save: it then refuses writes, or forgets counts.
func (d *doctor) state(ctx context.Context, client redis.UniversalClient) {
	const check = "redis state"
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		d.stateOf(ctx, check, client, "standalone")
		return
	}
	if text, err := cluster.ClusterInfo(ctx).Result(); err != nil || infoOf(text)["cluster_state"] != "ok" {
		d.add(checkError, check, "the Cluster does not serve every slot", "see CLUSTER INFO: what belongs to the others fails")
	}
	var mu sync.Mutex
	nodes := make(map[string]*redis.Client)
	// It visits them at once.
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		nodes[node.Options().Addr] = node
		return node.Ping(ctx).Err()
	})
	if err != nil {
		d.add(checkError, check, err.Error(), "see that every primary of the Cluster is reached at the address that the Cluster gives it")
		return
	}
	for _, addr := range slices.Sorted(maps.Keys(nodes)) {
		d.stateOf(ctx, check+" of "+addr, nodes[addr], "cluster")
	}
}

// stateOf looks at one server, which must be of the mode.
func (d *doctor) stateOf(ctx context.Context, check string, client redis.UniversalClient, mode string) {
	text, err := client.Info(ctx).Result()
	if err != nil {
		d.add(checkWarning, check, err.Error(), "let the user of REDIS_URL run INFO, or see to it by hand")
		return
	}
	info := infoOf(text)
	policy := info["maxmemory_policy"]
	switch {
	case info["redis_mode"] == "sentinel":
		d.add(checkError, check, "this is a Sentinel", "name it as one in REDIS_URL: redis+sentinel://...?master_name=NAME")
	case info["redis_mode"] == "cluster" && mode != "cluster":
		d.add(checkError, check, "this is one node of a Cluster", "name the Cluster in REDIS_URL, redis+cluster://...: one node takes a part of the counts alone")
	case info["role"] == "slave":
		d.add(checkError, check, "this is a replica", "name the primary in REDIS_URL: a replica takes no counts")
	case info["maxmemory"] != "0" && policy != "noeviction" && info["evicted_keys"] != "0":
		d.add(checkWarning, check, info["evicted_keys"]+" keys were evicted ("+policy+")", "give Redis more memory: clients may do more than their limit")
	case info["rdb_last_bgsave_status"] == "err" || info["aof_last_write_status"] == "err":
		d.add(checkWarning, check, "it cannot save, and may refuse writes for that", "switch saving off (save \"\", appendonly no): nothing in it needs to last")
	case info["aof_enabled"] == "1":
		d.add(checkWarning, check, "it writes an append-only file", "switch it off (appendonly no): nothing in it needs to last, and writes wait for the disk")
	default:
		d.ok(check, fmt.Sprintf("maxmemory %s, %s", info["maxmemory_human"], policy))
	}
}

// infoOf reads the answer of INFO.
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
	// edgeLook is the pause between two looks at edges, longestLook how long to look at most.
	edgeLook, longestLook = 100 * time.Millisecond, 5 * time.Second
	// edgeVisits is how many edges are visited at once.
	edgeVisits = 16
)

// edges watches the rows for as long as a lease holds, and visits who they name.
func (d *doctor) edges() {
	ctx, cancel := context.WithTimeout(d.task.ctx, longestLook+doctorTimeout)
	defer cancel()
	first, still, shared, err := d.watch(ctx)
	switch {
	case err != nil:
		d.fails("edges", err)
		return
	case len(first) == 0:
		d.add(checkWarning, "edges", "none is registered", "start one; no click is answered")
		return
	}
	if len(still) > 0 {
		d.add(checkError, "edge leases", "no sign of life in "+strings.Join(still, ", "),
			"see whether these edges run and reach Postgres; rows of dead ones go away by themselves, and changes wait for them until then")
	} else {
		d.ok("edge leases", fmt.Sprintf("all %d are renewed", len(first)))
	}
	if shared = append(shared, sameAddress(first)...); len(shared) > 0 {
		d.add(checkError, "edge slots", strings.Join(shared, "; "), "give each edge an EDGE_SLOT and an address of its own")
	} else {
		d.ok("edge slots", "each is held by one edge")
	}
	d.releases(first)
	d.visit(ctx, slices.DeleteFunc(first, func(e store.EdgeRow) bool { return slices.Contains(still, e.Slot) }))
}

// releases compares those of the edges with each other and with that of this control. What nobody knows is not compared.
func (d *doctor) releases(edges []store.EdgeRow) {
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
		d.ok(check, "nobody knows theirs")
	case 1:
		d.ok(check, "all that know theirs are "+found[0])
	default:
		d.add(checkWarning, check, strings.Join(found, "; "), "go on with the upgrade, or back")
	}
}

// watch returns the rows, the slots of those that stood still for their lease, and what is wrong with slots.
func (d *doctor) watch(ctx context.Context) (first []store.EdgeRow, still, shared []string, err error) {
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
		case <-time.After(edgeLook):
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
				shared = append(shared, "slot "+e.Slot+" changed hands while it was watched")
				delete(waiting, e.Slot)
			case e.Renewals != before.Renewals:
				delete(waiting, e.Slot)
			case looked > min(max(e.Lease, 4*feed.PollEvery), longestLook):
				still = append(still, e.Slot)
				delete(waiting, e.Slot)
			}
		}
		for slot := range waiting {
			if !slices.ContainsFunc(rows, func(e store.EdgeRow) bool { return e.Slot == slot }) {
				delete(waiting, slot) // it left in good order
			}
		}
	}
	slices.Sort(still)
	return first, still, shared, nil
}

// sameAddress returns what is wrong when two slots name one address.
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

// visit asks each edge whether it is there.
func (d *doctor) visit(ctx context.Context, edges []store.EdgeRow) {
	var mu sync.Mutex
	var lost, other []string
	var group errgroup.Group
	group.SetLimit(edgeVisits)
	v := newVisitor(d.command.LinkBaseURL)
	asked := 0
	for _, e := range edges {
		if e.Address == "" {
			continue
		}
		asked++
		group.Go(func() error {
			spoken, err := v.version(ctx, e.Address)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				lost = append(lost, fmt.Sprintf("%s at %s (%v)", e.Slot, e.Address, err))
			} else if spoken != version {
				other = append(other, fmt.Sprintf("%s speaks %s", e.Slot, spoken))
			}
			return nil
		})
	}
	_ = group.Wait() // no visit fails the group
	slices.Sort(lost)
	slices.Sort(other)
	if len(lost) > 0 {
		d.add(checkError, "edge addresses", "not reached: "+strings.Join(lost, ", "), "see EDGE_ADVERTISE and the network from here: the canary goes this way, clicks do not")
	} else {
		d.ok("edge addresses", fmt.Sprintf("%d of %d were asked and answer", asked, len(edges)))
	}
	if len(other) > 0 {
		d.add(checkWarning, "edge versions", strings.Join(other, ", ")+"; control speaks "+version, "upgrade what is older")
	} else if asked > len(lost) {
		d.ok("edge versions", "all speak "+version)
	}
}

// version asks the edge at address for the version of what it speaks.
func (v *visitor) version(ctx context.Context, address string) (string, error) {
	if !validAddress(address) {
		return "", errAddress
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/healthz", nil)
	if err != nil {
		return "", err
	}
	request.Host = v.host
	request.Header.Set("User-Agent", visitorAgent)
	response, err := v.http.Do(request)
	if err != nil {
		return "", errors.Unwrap(err)
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, visitHeader)
	if response.Header.Get(versionHeader) == "" {
		return "", errNoEdge
	}
	return response.Header.Get(versionHeader), nil
}
