-- +goose Up
-- The response to a write that had an Idempotency-Key, committed with the effect of the write, so that a repeated request gets it again.
create table idempotency_keys (
    organization_id uuid not null references organizations (id) on delete cascade,
    scope           bytea not null check (length(scope) = 32),
    fingerprint     bytea not null check (length(fingerprint) = 32),
    status          smallint not null check (status between 200 and 299),
    body            bytea not null,
    etag            text,
    result          text,
    xid             xid8 not null,
    is_create       boolean not null,
    is_bulk         boolean not null,
    created_at      timestamptz not null default clock_timestamp(),
    primary key (organization_id, scope)
);
create index idempotency_keys_created_at on idempotency_keys (created_at);
comment on table idempotency_keys is 'Responses to writes with an Idempotency-Key, for 24 hours. A row is written in the transaction of its effect.';
comment on column idempotency_keys.scope is 'SHA-256 of method, path and key. The key itself is stored nowhere.';
comment on column idempotency_keys.fingerprint is 'SHA-256 of query, conditions and body: a repeated request must have the same.';
comment on column idempotency_keys.etag is 'Header of the response; null: none.';
comment on column idempotency_keys.result is 'Header Deeplink-Result of the response; null: none.';
comment on column idempotency_keys.xid is 'The transaction that the response waited for.';
comment on column idempotency_keys.is_create is 'Whether the request only created links. Such a response waits for the edges for a shorter time.';
comment on column idempotency_keys.is_bulk is 'Whether the request had several operations, which may have waited for the changes of several transactions.';

-- Keys that control generates once and all controls share.
create table signing_keys (
    name text primary key check (name in ('cursor')),
    key  bytea not null check (length(key) = 32)
);
comment on table signing_keys is 'Signing keys of control. cursor: authenticates the cursors of lists, which never expire, so the key stays.';

grant select, insert, update, delete on idempotency_keys to deeplink_control;
grant select, insert on signing_keys to deeplink_control;
