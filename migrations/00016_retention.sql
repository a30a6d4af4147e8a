-- +goose Up
-- The database objects for control's cleanup: bounded steps, the deletion of devices and identities, and a function that lists transactions
-- which block it.

-- No statement waits for a lock without a bound.
alter function make_event_partitions(integer) set lock_timeout = '2s';
alter function tend_search_indexes() set lock_timeout = '2s';

-- One partition at a time: the lock on events, for which all inserts wait, ends with the call.
-- +goose StatementBegin
create or replace function drop_event_partitions(retention interval) returns integer
language plpgsql security definer set search_path = public, pg_temp set lock_timeout = '200ms' as $$
declare
    kept date := ((now() - retention) at time zone 'UTC')::date;
    name text;
begin
    if retention < interval '1 day' then
        raise exception 'events are kept for a day at least, not for %', retention;
    end if;
    select c.relname into name
    from pg_inherits i join pg_class c on c.oid = i.inhrelid
    where i.inhparent = 'events'::regclass and c.relname < 'events_' || to_char(kept, 'YYYYMMDD') order by 1 limit 1;
    if not found then
        return 0;
    end if;
    execute format('drop table %I', name);
    return 1;
end
$$;
-- +goose StatementEnd
comment on function drop_event_partitions(interval) is 'Drops the oldest partition if its last event is older than that, and returns how many it dropped: 1 or 0. Fails with 55P03 when the partition is being read.';
comment on table event_ids is 'Ids of events of the last 31 days, for as long as a phone may send an event again. Its key holds over all partitions of events, which no key of theirs can: the insert of an id here decides whether the event is stored.';

-- Unused devices and identities are deleted (DEVICES_RETENTION), and on request by control device delete. Programs of the previous version
-- do not set the new column.
alter table devices add column identified_at timestamptz(3);
comment on column devices.identified_at is 'When its user was last named or cleared; null: never, or before this column was there.';
comment on table devices is 'Phones and browsers of an organization, by the id that its SDK gave them. The lock on a row orders what is said of its device. Deleted when it was not used for DEVICES_RETENTION.';
comment on table identities is 'Users that an app of the organization has named, on whatever device. The service reads nothing of it: it is for operators. Deleted when the user was not named for DEVICES_RETENTION and no device is the user''s.';
grant delete on devices, identities to deeplink_control;

-- Control cannot change events, except to remove whose they are.
-- +goose StatementBegin
create function anonymize_events(organization uuid, devices text[], of_user text, since timestamptz, since_id uuid, until timestamptz, until_id uuid)
returns bigint language sql security definer set search_path = public, pg_temp as $$
    with erased as (
        update events set device_id = '', user_id = null, session_id = null, properties = null
        where organization_id = organization and received_at >= since and received_at <= until
          and (received_at, id) > (since, since_id) and (received_at, id) <= (until, until_id)
          and (device_id = any (devices) or user_id = of_user)
        returning 1
    )
    select count(*) from erased
$$;
-- +goose StatementEnd
comment on function anonymize_events(uuid, text[], text, timestamptz, uuid, timestamptz, uuid) is 'Erases device, user, session and properties of the organization''s events that arrived after one place (time of arrival, id) and until another and are of one of the devices or of the user. Returns how many. Name, times, link and revenue stay, for sums.';
comment on column events.device_id is 'As sent; there need be no such device. Empty: erased.';
revoke execute on function anonymize_events(uuid, text[], text, timestamptz, uuid, timestamptz, uuid) from public;
grant execute on function anonymize_events(uuid, text[], text, timestamptz, uuid, timestamptz, uuid) to deeplink_control;

-- An open transaction prevents vacuum, in every database of the server, from removing rows that it might still read. Roles see the
-- transactions of others only as members of pg_read_all_stats; this function shows control their start and role, without their statements.
-- +goose StatementBegin
create function open_transactions(at_least interval)
returns table (pid integer, role text, database text, application text, state text, since timestamptz)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select a.pid, a.usename::text, a.datname::text, a.application_name, coalesce(a.state, a.backend_type), a.xact_start
    from pg_stat_activity a
    -- Autovacuum takes its time on large tables and keeps nothing from being cleaned up.
    where a.xact_start <= clock_timestamp() - at_least and a.backend_type <> 'autovacuum worker' and a.pid <> pg_backend_pid()
    union all
    select 0, p.owner::text, p.database::text, '', 'prepared as ' || p.gid, p.prepared
    from pg_prepared_xacts p where p.prepared <= clock_timestamp() - at_least
    order by 6
$$;
create function hidden_sessions() returns bigint
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select count(*) from pg_stat_activity a
    where a.usesysid is not null and not pg_has_role('pg_read_all_stats', 'usage') and not pg_has_role(a.usesysid, 'usage')
$$;
-- +goose StatementEnd
comment on function open_transactions(interval) is 'The transactions of the server that have been open for at least so long, the oldest first; pid 0: a prepared one.';
comment on function hidden_sessions() is 'How many sessions open_transactions cannot see, because the owner of this function is not a member of pg_read_all_stats.';
revoke execute on function open_transactions(interval), hidden_sessions() from public;
grant execute on function open_transactions(interval), hidden_sessions() to deeplink_control;
