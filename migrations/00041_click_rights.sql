-- +goose Up
-- An edge needs no other columns of logs and clicks than those that it writes: created_at says since when clicks are counted, and late is what
-- the roll-up decides.
revoke select, insert, update on click_logs from deeplink_edge;
grant select (log, slot, state, durable, through, published_at, ended_at), insert (log, slot, state, durable, through, published_at, ended_at),
    update (log, slot, state, durable, through, published_at, ended_at) on click_logs to deeplink_edge;
revoke insert on clicks from deeplink_edge;
grant insert (log, sequence, ordinal, at, org_key, link_id, outcome, class, reason, ruleset, evidence, agent_id, country, language, referrer, visitor)
    on clicks to deeplink_edge;

-- +goose Down
revoke select (log, slot, state, durable, through, published_at, ended_at), insert (log, slot, state, durable, through, published_at, ended_at),
    update (log, slot, state, durable, through, published_at, ended_at) on click_logs from deeplink_edge;
grant select, insert, update on click_logs to deeplink_edge;
revoke insert (log, sequence, ordinal, at, org_key, link_id, outcome, class, reason, ruleset, evidence, agent_id, country, language, referrer, visitor)
    on clicks from deeplink_edge;
grant insert on clicks to deeplink_edge;
