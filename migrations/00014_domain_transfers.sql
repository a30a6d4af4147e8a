-- +goose Up
-- A host whose owner's TXT record is missing moves, after a waiting period, to another organization that has proved it.
create table domain_transfers (
    domain_id    uuid primary key references domains (id) on delete cascade,
    owner_id     uuid references domains (id) on delete set null,
    host         text collate "C" not null,
    started_at   timestamptz not null,
    completes_at timestamptz not null,
    check_at     timestamptz not null
);
create index domain_transfers_owner on domain_transfers (owner_id);
create index domain_transfers_host on domain_transfers (host);
create index domain_transfers_check on domain_transfers (check_at);
comment on table domain_transfers is 'Claims to hosts that another organization has verified, from the proof of the claim while the TXT record of the owner is gone, until the host moves, the record of the owner is back, or that of the claim is gone.';
comment on column domain_transfers.domain_id is 'The pending domain that claims the host.';
comment on column domain_transfers.owner_id is 'The verified domain of the host when the waiting period started. Null: it has been deleted. If another domain has the host by now, the waiting period starts again.';
comment on column domain_transfers.completes_at is 'When the waiting period ends. Both organizations see this time.';
comment on column domain_transfers.check_at is 'When control looks at the TXT records of the host next. The control that looks moves it on before.';
grant select, insert, update, delete on domain_transfers to deeplink_control;

alter table domains add column lost_at timestamptz(3);
comment on column domains.lost_at is 'When the host moved to another organization. Its links are kept and do not resolve. Null when the domain has been verified since.';

-- Changes that background jobs make to an organization's catalog are in its audit trail. NOT VALID: the previous constraint was stricter,
-- so existing rows need no check.
alter table audit_log drop constraint audit_log_actor_type_check;
alter table audit_log add constraint audit_log_actor_type_check check (actor_type in ('user', 'key', 'operator', 'service')) not valid;
comment on column audit_log.actor_id is 'Subject of a session token, id of an API key, name of an operator or of a background job; null when the token named nobody.';

-- Edges serve verified domains only, so a change of a domain that is pending before and after it affects no edge. Any organization may have
-- any host pending: that must not void the entries of the owner's domain.
-- +goose StatementBegin
create or replace function domains_changed() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
    perform record_change(array_agg(distinct 'd:' || coalesce(d.host, o.org_key)), array_agg(distinct 'o:' || o.org_key))
    from (select old.host, old.organization_id where tg_op in ('UPDATE', 'DELETE') and old.status = 'verified'
          union all select new.host, new.organization_id where tg_op in ('INSERT', 'UPDATE') and new.status = 'verified') d
    join organizations o on o.id = d.organization_id
    having count(*) > 0;
    return null;
end
$$;
-- +goose StatementEnd
