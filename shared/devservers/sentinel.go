package devservers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// primaryName is the name of the primary in the Sentinels' configuration.
const primaryName = "deeplink"

// Sentinels are a Redis, its replica, and three Sentinels, of which two suffice to promote the replica.
type Sentinels struct {
	Servers [2]*Redis // the first one started as the primary
	Watch   [3]*Redis
}

// StartSentinels starts them in folders below dir. A primary counts as down after it has been silent for down. Close ends all servers, also
// after an error.
func StartSentinels(ctx context.Context, dir string, down time.Duration) (s *Sentinels, err error) {
	s = new(Sentinels)
	for i := range s.Servers {
		options := RedisOptions{Dir: filepath.Join(dir, "redis-"+strconv.Itoa(i))}
		if i > 0 {
			options.Arguments = []string{"--replicaof", "127.0.0.1 " + s.Servers[0].portText()}
		}
		if s.Servers[i], err = StartRedis(ctx, options); err != nil {
			return s, err
		}
	}
	// A Sentinel that never saw the replica would not promote it.
	if err := s.Servers[0].says(ctx, "INFO replication", "state=online"); err != nil {
		return s, err
	}
	config := fmt.Sprintf("sentinel monitor %[1]s 127.0.0.1 %[2]s 2\nsentinel down-after-milliseconds %[1]s %[3]d\nsentinel failover-timeout %[1]s 10000\n",
		primaryName, s.Servers[0].portText(), down.Milliseconds())
	for i := range s.Watch {
		options := RedisOptions{Dir: filepath.Join(dir, "sentinel-"+strconv.Itoa(i)), Config: config, Arguments: []string{"--sentinel"}}
		if s.Watch[i], err = StartRedis(ctx, options); err != nil {
			return s, err
		}
	}
	for _, w := range s.Watch {
		if err := w.says(ctx, "INFO sentinel", "status=ok", "slaves=1", "sentinels=3"); err != nil {
			return s, err
		}
	}
	return s, nil
}

// URL returns the value for REDIS_URL.
func (s *Sentinels) URL() string {
	var addrs []string
	for _, w := range s.Watch {
		addrs = append(addrs, w.Addr())
	}
	return "redis+sentinel://" + strings.Join(addrs, ",") + "/0?master_name=" + primaryName
}

// Promoted waits until the Sentinels name a server that accepts writes.
func (s *Sentinels) Promoted(ctx context.Context, server *Redis) error {
	for _, w := range s.Watch {
		if err := w.says(ctx, "INFO sentinel", "address="+server.Addr()); err != nil {
			return err
		}
	}
	return server.says(ctx, "INFO replication", "role:master")
}

// Rejoin restarts a killed server, empty, as the replica of the current primary, and waits until it can be promoted.
func (s *Sentinels) Rejoin(ctx context.Context, former, primary *Redis) error {
	if err := former.Start(ctx); err != nil {
		return err
	}
	if _, err := former.Tell(ctx, "REPLICAOF 127.0.0.1 "+primary.portText()); err != nil {
		return err
	}
	return primary.says(ctx, "INFO replication", "state=online")
}

// Close ends all of them.
func (s *Sentinels) Close() error {
	return killAll(append(s.Watch[:], s.Servers[:]...))
}

// RedisCluster is three primaries, each with a third of the slots, without replicas.
type RedisCluster struct{ Servers [3]*Redis }

// slots is the number of slots of every Redis Cluster.
const slots = 16384

// StartRedisCluster starts a cluster in folders below dir. Close ends all servers, also after an error.
func StartRedisCluster(ctx context.Context, dir string) (c *RedisCluster, err error) {
	c = new(RedisCluster)
	var buses [len(c.Servers)]string
	for i := range c.Servers {
		addr, err := FreeAddr()
		if err != nil {
			return c, err
		}
		_, buses[i], _ = net.SplitHostPort(addr)
		c.Servers[i], err = StartRedis(ctx, RedisOptions{Dir: filepath.Join(dir, "redis-"+strconv.Itoa(i)), Arguments: []string{
			"--cluster-enabled", "yes", "--cluster-port", buses[i], "--cluster-node-timeout", "2000",
		}})
		if err != nil {
			return c, err
		}
	}
	for i, server := range c.Servers {
		from, to := i*slots/len(c.Servers), (i+1)*slots/len(c.Servers)-1
		commands := []string{fmt.Sprintf("CLUSTER ADDSLOTSRANGE %d %d", from, to)}
		if i > 0 {
			commands = append(commands, fmt.Sprintf("CLUSTER MEET 127.0.0.1 %s %s", c.Servers[0].portText(), buses[0]))
		}
		for _, command := range commands {
			if _, err := server.Tell(ctx, command); err != nil {
				return c, err
			}
		}
	}
	for _, server := range c.Servers {
		if err := server.says(ctx, "CLUSTER INFO", "cluster_state:ok", "cluster_known_nodes:3", fmt.Sprintf("cluster_slots_ok:%d", slots)); err != nil {
			return c, err
		}
	}
	return c, nil
}

// URL returns the value for REDIS_URL.
func (c *RedisCluster) URL() string {
	var addrs []string
	for _, server := range c.Servers {
		addrs = append(addrs, server.Addr())
	}
	return "redis+cluster://" + strings.Join(addrs, ",")
}

// Close ends all servers.
func (c *RedisCluster) Close() error { return killAll(c.Servers[:]) }

func killAll(servers []*Redis) error {
	var errs []error
	for _, server := range servers {
		if server != nil {
			errs = append(errs, server.Kill())
		}
	}
	return errors.Join(errs...)
}

func (r *Redis) portText() string { return strconv.Itoa(r.port) }

// says repeats a command until the reply contains all of the words.
func (r *Redis) says(ctx context.Context, command string, words ...string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		text, err := r.Tell(ctx, command)
		if err == nil && containsAll(text, words) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s on %s: the reply lacks %v: %w\n%s", command, r.Addr(), words, errors.Join(ctx.Err(), err), text)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func containsAll(text string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}
