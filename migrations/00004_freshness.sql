-- +goose Up
create table changes (
    id         bigint generated always as identity primary key,
    xid        xid8 not null default pg_current_xact_id(),
    tags       text[] not null,
    created_at timestamptz not null default clock_timestamp()
);
create index changes_xid on changes (xid);
comment on table changes is 'What edges must forget, one row per changing statement, filled by triggers alone. Read by every edge as a window of transactions, purged by control once a snapshot ten minutes old sees them.';
comment on column changes.tags is 'k:{domain}/{code in lower case}, d:{domain}, o:{org_key} or * for everything; {domain} is the org_key on the shared host, otherwise the host.';

create table deleted_links (
    id              uuid primary key,
    organization_id uuid not null,
    xid             xid8 not null default pg_current_xact_id()
);
create index deleted_links_xid on deleted_links (xid);
comment on table deleted_links is 'Links deleted within the last minutes, so that whoever hears that one is gone waits for the same edges as the deletion did. Purged with changes.';

create table edges (
    slot        text primary key check (length(slot) between 1 and 255),
    incarnation uuid not null,
    renewals    bigint not null default 1,
    lease_ms    integer not null check (lease_ms > 0),
    hold_ms     integer not null check (hold_ms >= lease_ms),
    applied     pg_snapshot
) with (fillfactor = 50);
comment on table edges is 'Edges that may answer from their caches. A row is there before the right is, and gone only after it was given up.';
comment on column edges.incarnation is 'The process that holds the slot.';
comment on column edges.renewals is 'Bumped by every poll; a row that has not moved for hold_ms has no right left.';
comment on column edges.lease_ms is 'How long the edge answers from its cache after a poll began.';
comment on column edges.hold_ms is 'lease_ms plus how long it may go on while Postgres cannot be reached.';
comment on column edges.applied is 'The snapshot whose changes the edge has applied; null before its first poll.';

create table match_redemptions (
    nonce      bytea primary key check (length(nonce) between 8 and 32),
    link_id    uuid not null,
    device_id  text,
    matched_at timestamptz(3) not null default clock_timestamp()
);
create index match_redemptions_matched_at on match_redemptions (matched_at);
comment on table match_redemptions is 'Spent match tokens: one row per token, its insert is the redemption. Purged by control once the token would have expired.';

-- One row of changes per statement. A statement that affects very many keys (an import, a manual UPDATE) has the tags of their
-- organizations instead, or the tag of everything: voiding too much only costs time.
-- +goose StatementBegin
create function record_change(keys text[], organization_keys text[]) returns void
language plpgsql security definer set search_path = public, pg_temp as $$
begin
    if cardinality(keys) = 0 then
        return;
    elsif cardinality(keys) <= 256 then
        insert into changes (tags) values (keys);
    elsif cardinality(organization_keys) <= 256 then
        insert into changes (tags) values (organization_keys);
    else
        insert into changes (tags) values ('{*}');
    end if;
end
$$;

create function links_changed() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
    if tg_op = 'INSERT' then
        perform record_change(coalesce(array_agg(distinct 'k:' || coalesce(d.host, o.org_key) || '/' || lower(l.short_code)), '{}'),
                              coalesce(array_agg(distinct 'o:' || o.org_key), '{}'))
        from new_rows l join domains d on d.id = l.domain_id join organizations o on o.id = l.organization_id;
    elsif tg_op = 'UPDATE' then
        -- links_before_update marked the rows of which an edge serves something new. Both names of a renamed key are written.
        perform record_change(coalesce(array_agg(distinct 'k:' || coalesce(d.host, o.org_key) || '/' || lower(l.short_code)), '{}'),
                              coalesce(array_agg(distinct 'o:' || o.org_key), '{}'))
        from (select n.organization_id, n.domain_id, n.short_code from new_rows n where n.changed_xid = pg_current_xact_id()
              union all
              select b.organization_id, b.domain_id, b.short_code from old_rows b
              where not exists (select 1 from new_rows n where n.id = b.id and n.changed_xid <> pg_current_xact_id())) l
        join domains d on d.id = l.domain_id join organizations o on o.id = l.organization_id;
    elsif tg_op = 'DELETE' then
        insert into deleted_links (id, organization_id) select id, organization_id from old_rows
        on conflict (id) do update set organization_id = excluded.organization_id, xid = excluded.xid;
        perform record_change(coalesce(array_agg(distinct 'k:' || coalesce(d.host, o.org_key) || '/' || lower(l.short_code)), '{}'),
                              coalesce(array_agg(distinct 'o:' || o.org_key), '{}'))
        from old_rows l join domains d on d.id = l.domain_id join organizations o on o.id = l.organization_id;
    end if;
    return null;
end
$$;

create function domains_changed() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
    perform record_change(array_agg(distinct 'd:' || coalesce(d.host, o.org_key)), array_agg(distinct 'o:' || o.org_key))
    from (select old.host, old.organization_id where tg_op in ('UPDATE', 'DELETE')
          union all select new.host, new.organization_id where tg_op in ('INSERT', 'UPDATE')) d
    join organizations o on o.id = d.organization_id
    having count(*) > 0;
    return null;
end
$$;

create function organizations_changed() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
    if tg_op = 'UPDATE' and new.org_key <> old.org_key then
        raise exception 'an organization keeps its org_key';
    end if;
    perform record_change(array['o:' || coalesce(new.org_key, old.org_key)], '{}');
    return null;
end
$$;

create function app_configs_changed() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
    perform record_change(array_agg(distinct 'o:' || o.org_key), '{}')
    from organizations o where o.id in (old.organization_id, new.organization_id)
    having count(*) > 0;
    return null;
end
$$;

create function everything_changed() returns trigger language plpgsql security definer set search_path = public, pg_temp as $$
begin
    perform record_change('{*}', '{}');
    return null;
end
$$;
-- +goose StatementEnd

revoke execute on function record_change(text[], text[]) from public;

create trigger links_changed_insert after insert on links referencing new table as new_rows for each statement execute function links_changed();
create trigger links_changed_update after update on links referencing old table as old_rows new table as new_rows for each statement execute function links_changed();
create trigger links_changed_delete after delete on links referencing old table as old_rows for each statement execute function links_changed();
create trigger links_changed_truncate after truncate on links for each statement execute function everything_changed();
create trigger domains_changed after insert or update or delete on domains for each row execute function domains_changed();
create trigger domains_changed_truncate after truncate on domains for each statement execute function everything_changed();
create trigger organizations_changed_insert after insert or delete on organizations for each row execute function organizations_changed();
create trigger organizations_changed_update after update of org_key, suspended on organizations for each row execute function organizations_changed();
create trigger organizations_changed_truncate after truncate on organizations for each statement execute function everything_changed();
create trigger app_configs_changed after insert or update or delete on app_configs for each row execute function app_configs_changed();
create trigger app_configs_changed_truncate after truncate on app_configs for each statement execute function everything_changed();

-- Always: also in a session whose session_replication_role is replica, as some tools that copy data set it.
alter table links enable always trigger links_changed_insert;
alter table links enable always trigger links_changed_update;
alter table links enable always trigger links_changed_delete;
alter table links enable always trigger links_changed_truncate;
alter table domains enable always trigger domains_changed;
alter table domains enable always trigger domains_changed_truncate;
alter table organizations enable always trigger organizations_changed_insert;
alter table organizations enable always trigger organizations_changed_update;
alter table organizations enable always trigger organizations_changed_truncate;
alter table app_configs enable always trigger app_configs_changed;
alter table app_configs enable always trigger app_configs_changed_truncate;

grant select, delete on changes, deleted_links, edges to deeplink_control;
grant select, delete on match_redemptions to deeplink_control;
grant select on changes to deeplink_edge;
grant select, insert, update, delete on edges to deeplink_edge;
grant select, insert on match_redemptions to deeplink_edge;
