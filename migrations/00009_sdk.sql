-- +goose Up
-- Data that apps send through the SDK. Edges serve none of it, so it causes no rows in changes, and the role of the edges has no right to
-- it. It has no foreign keys to links either: an event may name a link that was deleted long ago.
create table devices (
    organization_id    uuid not null references organizations (id) on delete cascade,
    id                 text collate "C" not null check (id ~ '^[A-Za-z0-9._:-]{1,128}$'),
    user_id            text,
    platform           text,
    os_version         text,
    app_version        text,
    sdk_version        text,
    model              text,
    locale             text,
    timezone           text,
    session_id         uuid,
    session_first      boolean,
    session_started_at timestamptz(3),
    session_active_at  timestamptz(3),
    created_at         timestamptz(3) not null default clock_timestamp(),
    primary key (organization_id, id),
    check (num_nulls(session_id, session_first, session_started_at, session_active_at) in (0, 4))
) with (fillfactor = 80);
comment on table devices is 'Phones and browsers of an organization, by the id that its SDK gave them. The lock on a row orders what is said of its device.';
comment on column devices.user_id is 'Who uses it, once identified and until cleared.';
comment on column devices.session_id is 'The latest session; null before the first. It goes on while the device is active within 30 minutes.';
comment on column devices.session_first is 'Whether the latest session is the first of the device.';

create table identities (
    organization_id uuid not null references organizations (id) on delete cascade,
    user_id         text collate "C" not null check (length(user_id) between 1 and 255),
    traits          json,
    created_at      timestamptz(3) not null default clock_timestamp(),
    updated_at      timestamptz(3) not null default clock_timestamp(),
    primary key (organization_id, user_id)
);
comment on table identities is 'Users whom an app of the organization has named, on whatever device.';
comment on column identities.traits is 'JSON object as sent last.';

create table sessions (
    organization_id uuid not null,
    id              uuid not null,
    device_id       text collate "C" not null,
    is_first        boolean not null,
    link_id         uuid,
    platform        text,
    app_version     text,
    started_at      timestamptz(3) not null,
    active_at       timestamptz(3) not null,
    primary key (organization_id, id)
) with (fillfactor = 90);
create index sessions_started_at on sessions (started_at);
comment on table sessions is 'Visits of devices. Kept as long as events.';
comment on column sessions.link_id is 'The first link that opened the app in this session.';
comment on column sessions.active_at is 'When the app last asked for this session. What its events add to that is in devices.';

create table events (
    organization_id uuid not null,
    id              uuid not null,
    device_id       text collate "C" not null,
    session_id      uuid,
    user_id         text,
    name            text not null,
    occurred_at     timestamptz(3) not null,
    claimed_at      timestamptz(3),
    link_id         uuid,
    revenue         numeric(18, 6),
    currency        text,
    properties      json,
    received_at     timestamptz(3) not null,
    primary key (organization_id, received_at, id)
) partition by range (received_at);
comment on table events is 'What apps report, one partition per day (UTC) of arrival, named events_YYYYMMDD. Control makes them ahead and drops them when they are past their time.';
comment on column events.user_id is 'Who used the device when the event arrived.';
comment on column events.occurred_at is 'By the clock of the device, unless that was far off.';
comment on column events.claimed_at is 'What the clock of the device said, where that was too far off to be believed. Else null.';
comment on column events.session_id is 'As sent; it may be unknown here. So may link_id.';

create table event_ids (
    organization_id uuid not null,
    id              uuid not null,
    received_at     timestamptz(3) not null,
    primary key (organization_id, id)
);
create index event_ids_received_at on event_ids (received_at);
comment on table event_ids is 'Ids of events of the last seven days. Its key holds over all partitions of events, which no key of theirs can: whoever inserts an id here stores the event.';

-- A new partition gets its constraints before it is attached, so that the attachment neither waits for inserts nor blocks them. Control
-- owns nothing, so both functions run as the owner.
-- +goose StatementBegin
create function make_event_partitions(ahead integer) returns integer language plpgsql security definer set search_path = public, pg_temp as $$
declare
    today date := (now() at time zone 'UTC')::date;
    name  text;
    made  integer := 0;
begin
    if ahead not between 0 and 60 then
        raise exception 'partitions are made for 0 to 60 days ahead, not %', ahead;
    end if;
    for day in 0 .. ahead loop
        name := 'events_' || to_char(today + day, 'YYYYMMDD');
        continue when to_regclass(name) is not null;
        perform pg_advisory_xact_lock(hashtext('events'));
        -- Not to_regclass again: it remembers that there was none.
        continue when exists (select from pg_class where relname = name and relnamespace = 'public'::regnamespace);
        execute format('create table %I (like events including defaults including constraints)', name);
        execute format('alter table events attach partition %I for values from (%L) to (%L)', name,
                       to_char(today + day, 'YYYY-MM-DD "00:00:00+00"'), to_char(today + day + 1, 'YYYY-MM-DD "00:00:00+00"'));
        made := made + 1;
    end loop;
    return made;
end
$$;

-- The lock that dropping takes keeps inserts waiting, so it is given up soon and tried again later.
create function drop_event_partitions(retention interval) returns integer
language plpgsql security definer set search_path = public, pg_temp set lock_timeout = '200ms' as $$
declare
    kept    date := ((now() - retention) at time zone 'UTC')::date;
    name    text;
    dropped integer := 0;
begin
    if retention < interval '1 day' then
        raise exception 'events are kept for a day at least, not for %', retention;
    end if;
    for name in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'events'::regclass and c.relname < 'events_' || to_char(kept, 'YYYYMMDD') order by 1
    loop
        execute format('drop table %I', name);
        dropped := dropped + 1;
    end loop;
    return dropped;
end
$$;
-- +goose StatementEnd

select make_event_partitions(7);

revoke execute on function make_event_partitions(integer), drop_event_partitions(interval) from public;
grant execute on function make_event_partitions(integer), drop_event_partitions(interval) to deeplink_control;
grant select, insert, update on devices, identities to deeplink_control;
grant select, insert, update, delete on sessions to deeplink_control;
grant select, insert on events to deeplink_control;
grant select, insert, delete on event_ids to deeplink_control;

-- +goose Down
drop function drop_event_partitions(interval);
drop function make_event_partitions(integer);
drop table event_ids, events, sessions, identities, devices;
