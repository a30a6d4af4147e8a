-- +goose Up
create table audit_log (
    id                uuid not null,
    organization_id   uuid not null,
    at                timestamptz(3) not null default clock_timestamp(),
    actor_type        text not null check (actor_type in ('user', 'key', 'operator')),
    actor_id          text,
    actor_display_key text,
    ip                inet,
    request_id        text,
    action            text not null check (action ~ '^[a-zA-Z]+\.[a-z]+$'),
    target_type       text not null,
    target_id         uuid not null,
    detail            jsonb not null,
    primary key (organization_id, at, id)
);
-- Rows are inserted and purged in the order of their times: an index of a few pages suffices for the purge, at hardly any cost for writes.
create index audit_log_at on audit_log using brin (at);
comment on table audit_log is 'Who changed what, one row per change, written in the transaction of the change. Kept for 400 days. It refers to nothing: a log outlives what it tells of, and its insert waits for nobody.';
comment on column audit_log.actor_id is 'Subject of a session token, id of an API key, or name of an operator; null when the token named nobody.';
comment on column audit_log.actor_display_key is 'The key in the form that people know: prefix, ellipsis and last four characters.';
comment on column audit_log.ip is 'Whole address from which the request came, kept as long as the row; null for operators.';
comment on column audit_log.request_id is 'X-Request-Id of the answer, as in the log of control.';
comment on column audit_log.detail is 'What the action alone does not say. Never a credential, nor the content of a link.';

-- Control can add entries and read them. It can neither change a row nor choose its time, and can delete only rows that are old enough: an
-- intruder in control leaves traces.
-- +goose StatementBegin
create function purge_audit_log() returns bigint language sql security definer set search_path = public, pg_temp as $$
    with gone as (delete from audit_log where at < now() - interval '400 days' returning 1) select count(*) from gone
$$;
-- +goose StatementEnd

revoke execute on function purge_audit_log() from public;
grant execute on function purge_audit_log() to deeplink_control;
grant select on audit_log to deeplink_control;
grant insert (id, organization_id, actor_type, actor_id, actor_display_key, ip, request_id, action, target_type, target_id, detail)
    on audit_log to deeplink_control;
