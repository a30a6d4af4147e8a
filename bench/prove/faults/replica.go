package faults

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"deeplink/bench/prove/faults/proxy"
	"deeplink/bench/prove/fleet"
	"deeplink/shared/devservers"
)

// redisTimeout bounds a command to a Redis of the rig.
const redisTimeout = 5 * time.Second

// command sends one command to a Redis directly, not through a proxy.
func command(ctx context.Context, server *devservers.Redis, do func(context.Context, *redis.Client) error) error {
	// Not package bus, whose short timeouts could fail here: only this command injects or heals the fault.
	client := redis.NewClient(&redis.Options{
		Addr: server.Addr(), MaxRetries: -1, DialTimeout: redisTimeout, ReadTimeout: redisTimeout, WriteTimeout: redisTimeout,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer client.Close()
	return do(ctx, client)
}

// replicate makes replica follow primary.
func replicate(ctx context.Context, replica, primary *devservers.Redis) error {
	host, port, err := net.SplitHostPort(primary.Addr())
	if err != nil {
		return err
	}
	err = command(ctx, replica, func(ctx context.Context, c *redis.Client) error { return c.ReplicaOf(ctx, host, port).Err() })
	if err != nil {
		return fmt.Errorf("make a replica of Redis: %w", err)
	}
	return nil
}

// primary returns the Redis that the proxies lead to, and the other one.
func (r *rig) primary() (primary, other *devservers.Redis) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed {
		return r.second, r.Redis
	}
	return r.Redis, r.second
}

// failOver promotes the replica. The writes that the primary accepted after the two were cut off from each other are lost. Clients of the
// old primary stay with it: their connections are reset or, if it hangs, stay silent. rejoin reverts this.
func (r *rig) failOver(ctx context.Context, lossy time.Duration, hung bool) error {
	primary, replica := r.primary()
	err := command(ctx, replica, func(ctx context.Context, c *redis.Client) error { return c.ReplicaOf(ctx, "no", "one").Err() })
	if err != nil {
		return fmt.Errorf("promote the replica of Redis: %w", err)
	}
	fleet.Pause(ctx, lossy)
	for _, m := range r.linked() {
		m.redis.SetTarget(replica.Addr())
		if !hung {
			m.redis.Cut()
		}
	}
	r.mu.Lock()
	r.failed = !r.failed
	r.mu.Unlock()
	if hung {
		return primary.Pause()
	}
	return nil
}

// rejoin makes the former primary, emptied, the replica of the current one.
func (r *rig) rejoin(ctx context.Context) error {
	primary, former := r.primary()
	if err := former.Kill(); err != nil {
		return err
	}
	if err := former.Start(ctx); err != nil {
		return err
	}
	return replicate(ctx, former, primary)
}

// flush empties Redis.
func (r *rig) flush(ctx context.Context) error {
	primary, _ := r.primary()
	return command(ctx, primary, func(ctx context.Context, c *redis.Client) error { return c.FlushAll(ctx).Err() })
}

// terminateBackends ends every connection to Postgres except its own.
func (r *rig) terminateBackends(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, fleet.StopTimeout)
	defer cancel()
	_, err := r.owner.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database()`)
	if err != nil {
		return fmt.Errorf("terminate the backends: %w", err)
	}
	return nil
}

// both applies a flow to both directions.
func both(flow proxy.Flow) proxy.Rules { return proxy.Rules{Up: flow, Down: flow} }
