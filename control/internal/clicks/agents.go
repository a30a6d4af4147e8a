package clicks

import (
	"context"
	"sync"

	agents "github.com/monperrus/crawler-user-agents"

	"github.com/jackc/pgx/v5"

	"deeplink/shared/click"
)

// maxAgents bounds the agents that a dictionary remembers.
const maxAgents = 200_000

// unlisted is the entry for agents that have none.
const unlisted = 0

// dictionary knows the facts of agents. It reads each agent once, and remembers it.
type dictionary struct {
	mu    sync.Mutex
	facts map[int32]click.Facts
	texts map[int32]string
}

func newDictionary() *dictionary {
	return &dictionary{facts: map[int32]click.Facts{}, texts: map[int32]string{}}
}

const agentsSQL = `select id, agent, coalesce(facts, 0), coalesce(ruleset, 0) from click_agents where id = any ($1)`

// An agent that an earlier ruleset has read keeps what that one knew: a reclassification needs it.
const readAgentsSQL = `
	with earlier as (
		insert into click_agent_rulesets (agent_id, ruleset, facts)
		select id, ruleset, facts from click_agents where id = any ($1) and ruleset <> $4 and facts is not null
		on conflict do nothing)
	update click_agents a set facts = n.facts, listed = n.listed, ruleset = $4
	from unnest($1::int[], $2::int[], $3::bool[]) n (id, facts, listed) where a.id = n.id`

// load makes the dictionary know the agents that have an entry. With store, it stores what it reads of new agents.
func (d *dictionary) load(ctx context.Context, tx pgx.Tx, ids map[int32]bool, store bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.facts) > maxAgents {
		clear(d.facts)
		clear(d.texts)
	}
	var unknown []int32
	for id := range ids {
		if _, known := d.facts[id]; !known && id != unlisted {
			unknown = append(unknown, id)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, agentsSQL, unknown)
	if err != nil {
		return err
	}
	var fresh, freshFacts []int32
	var listed []bool
	var id, facts int32
	var ruleset int16
	var text string
	_, err = pgx.ForEachRow(rows, []any{&id, &text, &facts, &ruleset}, func() error {
		if ruleset != click.Ruleset {
			read := readAgent(text)
			facts = int32(read)
			fresh, freshFacts, listed = append(fresh, id), append(freshFacts, facts), append(listed, read&click.FactListed != 0)
		}
		d.facts[id], d.texts[id] = click.Facts(facts), text
		return nil
	})
	if err != nil || !store || len(fresh) == 0 {
		return err
	}
	_, err = tx.Exec(ctx, readAgentsSQL, fresh, freshFacts, listed, click.Ruleset)
	return err
}

// readAgent returns what the rules know of a User-Agent, the public list of crawlers included.
func readAgent(text string) click.Facts {
	facts := click.Read([]byte(text))
	if agents.IsCrawler(text) {
		facts |= click.FactListed
	}
	return facts
}

// of returns the facts of a click's agent. ok is false for an agent without an entry.
func (d *dictionary) of(id *int32) (facts click.Facts, ok bool) {
	if id == nil {
		return click.Read(nil), true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	facts, ok = d.facts[*id]
	return facts, ok
}

// text returns the User-Agent of an entry, nil if the request had none. All agents without an entry have the text of the entry unlisted.
func (d *dictionary) text(id *int32) *string {
	if id == nil {
		return nil
	}
	if *id == unlisted {
		other := click.OtherValue
		return &other
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if text, ok := d.texts[*id]; ok {
		return &text
	}
	return nil
}

// classify returns the rule for a click under the rules of this control. Of an agent without an entry, the reason that the edge found stands:
// only the edge has read the agent.
func (d *dictionary) classify(c *Click, canary string) click.Reason {
	if c.OrgKey == canary {
		return click.Canary
	}
	facts, ok := d.of(c.AgentID)
	if !ok {
		return c.Reason
	}
	return click.Classify(c.Evidence, facts)
}

// agentIDs collects the agents of clicks.
func agentIDs(clicks []Click) map[int32]bool {
	ids := map[int32]bool{}
	for i := range clicks {
		if id := clicks[i].AgentID; id != nil {
			ids[*id] = true
		}
	}
	return ids
}
