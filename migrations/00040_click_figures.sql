-- +goose Up
-- The figures of clicks, which the roll-up of control keeps. control/internal/clicks/README.md has the protocol.
create type click_dimension as enum ('country', 'os', 'browser', 'device', 'language', 'referrer');
comment on type click_dimension is 'Property of a click for which figures are kept per day.';

-- A click keeps whether it was late for as long as it is kept; the row of its batch is deleted with its log.
alter table clicks add column late boolean not null default false;
comment on column clicks.late is 'Whether the batch of the click was late. The roll-up sets it.';
create index click_logs_created on click_logs (created_at);
create index click_logs_incomplete on click_logs (through) where state <> 'closed';

create table click_quarters (
    quarter    timestamptz not null,
    link_id    uuid,
    class      click_class not null,
    outcome    click_outcome not null,
    clicks     bigint not null,
    late       bigint not null default 0,
    undetailed bigint not null default 0,
    org_key    text collate "C" not null
) partition by range (quarter);
create unique index click_quarters_key on click_quarters (org_key, link_id, quarter, class, outcome) nulls not distinct;
comment on table click_quarters is 'Clicks per quarter of an hour and link. One partition per month (UTC), named click_quarters_YYYYMM; click_quarters_other has all other months. Kept for 400 days.';
comment on column click_quarters.quarter is 'Start of the quarter of an hour.';
comment on column click_quarters.link_id is 'The link, which may have been deleted since. Null: an unknown short URL, or the edge had no space for a counter of the link.';
comment on column click_quarters.class is 'Kind of client.';
comment on column click_quarters.outcome is 'Response of the edge.';
comment on column click_quarters.clicks is 'Number of clicks.';
comment on column click_quarters.late is 'How many of the clicks were late.';
comment on column click_quarters.undetailed is 'How many of the clicks an edge could only count. Unknown short URLs are not among them.';
comment on column click_quarters.org_key is 'Key of the organization.';

create table click_days (
    day        date not null,
    class      click_class not null,
    link_id    uuid,
    outcome    click_outcome not null,
    clicks     bigint not null,
    late       bigint not null default 0,
    undetailed bigint not null default 0,
    org_key    text collate "C" not null
) partition by range (day);
create unique index click_days_key on click_days (org_key, link_id, day, class, outcome) nulls not distinct;
create index click_days_day on click_days (org_key, day);
comment on table click_days is 'Clicks per day (UTC) and link. One partition per month, named click_days_YYYYMM; click_days_other has all other months.';
comment on column click_days.day is 'The day (UTC).';
comment on column click_days.class is 'Kind of client.';
comment on column click_days.link_id is 'As in click_quarters.';
comment on column click_days.outcome is 'Response of the edge.';
comment on column click_days.clicks is 'Number of clicks.';
comment on column click_days.late is 'How many of the clicks were late.';
comment on column click_days.undetailed is 'As in click_quarters.';
comment on column click_days.org_key is 'Key of the organization.';

create table click_org_quarters (
    quarter    timestamptz not null,
    class      click_class not null,
    outcome    click_outcome not null,
    clicks     bigint not null,
    late       bigint not null default 0,
    undetailed bigint not null default 0,
    org_key    text collate "C" not null
) partition by range (quarter);
create unique index click_org_quarters_key on click_org_quarters (org_key, quarter, class, outcome);
comment on table click_org_quarters is 'The sums of click_quarters over all links of an organization, in partitions alike.';
comment on column click_org_quarters.quarter is 'Start of the quarter of an hour.';
comment on column click_org_quarters.class is 'Kind of client.';
comment on column click_org_quarters.outcome is 'Response of the edge.';
comment on column click_org_quarters.clicks is 'Number of clicks.';
comment on column click_org_quarters.late is 'How many of the clicks were late.';
comment on column click_org_quarters.undetailed is 'As in click_quarters.';
comment on column click_org_quarters.org_key is 'Key of the organization.';

create table click_org_days (
    day        date not null,
    class      click_class not null,
    outcome    click_outcome not null,
    clicks     bigint not null,
    late       bigint not null default 0,
    undetailed bigint not null default 0,
    org_key    text collate "C" not null
) partition by range (day);
create unique index click_org_days_key on click_org_days (org_key, day, class, outcome);
comment on table click_org_days is 'The sums of click_days over all links of an organization, in partitions alike.';
comment on column click_org_days.day is 'The day (UTC).';
comment on column click_org_days.class is 'Kind of client.';
comment on column click_org_days.outcome is 'Response of the edge.';
comment on column click_org_days.clicks is 'Number of clicks.';
comment on column click_org_days.late is 'How many of the clicks were late.';
comment on column click_org_days.undetailed is 'As in click_quarters.';
comment on column click_org_days.org_key is 'Key of the organization.';

create table click_dimensions (
    day       date not null,
    class     click_class not null,
    clicks    bigint not null,
    link_id   uuid,
    dimension click_dimension not null,
    org_key   text collate "C" not null,
    value     text collate "C"
) partition by range (day);
create unique index click_dimensions_key on click_dimensions (org_key, link_id, dimension, day, class, value) nulls not distinct;
comment on table click_dimensions is 'Clicks per day (UTC), link and value of a dimension, except of unknown short URLs. One partition per month, named click_dimensions_YYYYMM; click_dimensions_other has all other months.';
comment on column click_dimensions.day is 'The day (UTC).';
comment on column click_dimensions.class is 'Kind of client.';
comment on column click_dimensions.clicks is 'Number of clicks.';
comment on column click_dimensions.link_id is 'As in click_quarters.';
comment on column click_dimensions.dimension is 'The dimension.';
comment on column click_dimensions.org_key is 'Key of the organization.';
comment on column click_dimensions.value is 'The value. Null: unknown. (other): more than 10,000 values on the day. (unrecorded): an edge could only count the clicks.';

create table click_org_dimensions (
    day       date not null,
    class     click_class not null,
    clicks    bigint not null,
    dimension click_dimension not null,
    org_key   text collate "C" not null,
    value     text collate "C"
) partition by range (day);
create unique index click_org_dimensions_key on click_org_dimensions (org_key, dimension, day, value, class) nulls not distinct;
comment on table click_org_dimensions is 'The sums of click_dimensions over all links of an organization, in partitions alike.';
comment on column click_org_dimensions.day is 'The day (UTC).';
comment on column click_org_dimensions.class is 'Kind of client.';
comment on column click_org_dimensions.clicks is 'Number of clicks.';
comment on column click_org_dimensions.dimension is 'The dimension.';
comment on column click_org_dimensions.org_key is 'Key of the organization.';
comment on column click_org_dimensions.value is 'As in click_dimensions.';

create table click_visitors (
    visitor bigint not null,
    day     date not null,
    link_id uuid not null,
    org_key text collate "C" not null,
    primary key (org_key, link_id, visitor, day)
) partition by range (day);
comment on table click_visitors is 'Visitors per day (UTC) and link with clicks of class human, each once. One partition per day, named click_visitors_YYYYMMDD; click_visitors_other has all other days. Kept as long as the clicks of the day.';
comment on column click_visitors.visitor is 'As in clicks.';
comment on column click_visitors.day is 'The day (UTC).';
comment on column click_visitors.link_id is 'The link. All zeros: all links of the organization.';
comment on column click_visitors.org_key is 'Key of the organization.';

create table click_visitor_days (
    day       date not null,
    visitors  bigint not null default 0 check (visitors >= 0),
    unhashed  bigint not null default 0,
    link_id   uuid not null,
    org_key   text collate "C" not null,
    sketch    bytea check (octet_length(sketch) = 16384),
    primary key (org_key, link_id, day)
) with (fillfactor = 80);
create index click_visitor_days_day on click_visitor_days (org_key, day);
comment on table click_visitor_days is 'Number of visitors per day (UTC) and link.';
comment on column click_visitor_days.day is 'The day (UTC).';
comment on column click_visitor_days.visitors is 'Number of visitors: exact, or the estimate of sketch.';
comment on column click_visitor_days.unhashed is 'Number of clicks of class human that have no visitor.';
comment on column click_visitor_days.link_id is 'The link. All zeros: all links of the organization.';
comment on column click_visitor_days.org_key is 'Key of the organization.';
comment on column click_visitor_days.sketch is 'Registers of a HyperLogLog (p = 14), from the 1,000,001st visitor on. Null: click_visitors has them all.';

create table click_links (
    org_key       text collate "C" not null,
    link_id       uuid not null,
    human         bigint not null default 0,
    last_human_at timestamptz(3),
    primary key (org_key, link_id)
) with (fillfactor = 80);
comment on table click_links is 'Clicks of class human over the lifetime of a link.';
comment on column click_links.org_key is 'Key of the organization.';
comment on column click_links.link_id is 'The link. It may have been deleted since.';
comment on column click_links.human is 'Number of clicks of class human, with every outcome.';
comment on column click_links.last_human_at is 'Time of the last of them; of clicks that were only counted, the start of their quarter of an hour. Null: there is none.';

create table click_organizations (
    org_key         text collate "C" primary key,
    reclassified_at timestamptz not null
);
comment on table click_organizations is 'Organizations of which clicks were reclassified.';
comment on column click_organizations.org_key is 'Key of the organization.';
comment on column click_organizations.reclassified_at is 'When a reclassification last changed a click.';

create table click_agent_rulesets (
    agent_id integer not null references click_agents (id) on delete cascade,
    ruleset  smallint not null,
    facts    integer not null,
    primary key (agent_id, ruleset)
);
comment on table click_agent_rulesets is 'What earlier versions of the rules knew of agents: a reclassification takes clicks out of the values under which they were counted.';
comment on column click_agent_rulesets.agent_id is 'The agent, in click_agents.';
comment on column click_agent_rulesets.ruleset is 'Version of the rules.';
comment on column click_agent_rulesets.facts is 'As in click_agents, under those rules.';

-- +goose StatementBegin
create function make_click_figure_partitions(ahead integer) returns integer
language plpgsql security definer set search_path = public, pg_temp set lock_timeout = '2s' as $$
declare
    today  date := (now() at time zone 'UTC')::date;
    parent record;
    first  date;
    next   date;
    name   text;
    made   integer := 0;
begin
    if ahead not between 0 and 60 then
        raise exception 'partitions are made for 0 to 60 days ahead, not %', ahead;
    end if;
    for parent in
        select * from (values ('click_quarters', 'quarter', 'month'), ('click_days', 'day', 'month'), ('click_org_quarters', 'quarter', 'month'),
                              ('click_org_days', 'day', 'month'), ('click_dimensions', 'day', 'month'), ('click_org_dimensions', 'day', 'month'),
                              ('click_visitors', 'day', 'day')) t (tab, col, unit)
    loop
        first := date_trunc(parent.unit, today::timestamp)::date;
        while first <= today + ahead loop
            next := (first + ('1 ' || parent.unit)::interval)::date;
            name := parent.tab || to_char(first, case parent.unit when 'day' then '_YYYYMMDD' else '_YYYYMM' end);
            if to_regclass(name) is null then
                perform pg_advisory_xact_lock(hashtext('click figures'));
                -- Not to_regclass again: it remembers that there was none.
                if not exists (select from pg_class where relname = name and relnamespace = 'public'::regnamespace) then
                    execute format('create table %I (like %I including defaults including constraints including storage)', name, parent.tab);
                    -- Rows that were written while there was no partition move into it: a partition must have all rows of its range.
                    execute format('lock table %I in access exclusive mode', parent.tab || '_other');
                    execute format('with moved as (delete from %I where %I >= %L and %I < %L returning *) insert into %I select * from moved',
                                   parent.tab || '_other', parent.col, first || case parent.col when 'quarter' then ' 00:00:00+00' else '' end,
                                   parent.col, next || case parent.col when 'quarter' then ' 00:00:00+00' else '' end, name);
                    execute format('alter table %I attach partition %I for values from (%L) to (%L)', parent.tab, name,
                                   first || case parent.col when 'quarter' then ' 00:00:00+00' else '' end,
                                   next || case parent.col when 'quarter' then ' 00:00:00+00' else '' end);
                    execute format('comment on table %I is %L', name, 'Rows of ' || parent.tab || ' from ' || first || ' on, before ' || next || ' (UTC).');
                    made := made + 1;
                end if;
            end if;
            first := next;
        end loop;
    end loop;
    return made;
end
$$;

-- The lock that dropping takes keeps roll-ups waiting, so it is given up soon and tried again later.
create function drop_click_figure_partitions(visitor_retention interval) returns integer
language plpgsql security definer set search_path = public, pg_temp set lock_timeout = '200ms' as $$
declare
    name    text;
    dropped integer := 0;
begin
    if visitor_retention is null or visitor_retention < interval '48 hours' then
        raise exception 'visitors are kept for at least 48 hours, not %', visitor_retention;
    end if;
    for name in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'click_visitors'::regclass and c.relname ~ '^click_visitors_\d{8}$'
          and c.relname < 'click_visitors_' || to_char((now() - visitor_retention) at time zone 'UTC', 'YYYYMMDD')
        union all
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent in ('click_quarters'::regclass, 'click_org_quarters'::regclass) and c.relname ~ '_\d{6}$'
          and right(c.relname, 6) < to_char((now() - interval '401 days') at time zone 'UTC', 'YYYYMM')
        order by 1
    loop
        execute format('drop table %I', name);
        dropped := dropped + 1;
    end loop;
    return dropped;
end
$$;
-- +goose StatementEnd
comment on function make_click_figure_partitions(integer) is 'Makes the partitions of the figures of clicks for today and this many days ahead (UTC), where they are missing. Returns how many it made.';
comment on function drop_click_figure_partitions(interval) is 'Drops the partitions of visitors whose day ended before that, and those of quarters whose month ended 400 days ago. Returns how many. It gives up if another transaction reads one of them (55P03).';

create table click_quarters_other partition of click_quarters default;
create table click_days_other partition of click_days default;
create table click_org_quarters_other partition of click_org_quarters default;
create table click_org_days_other partition of click_org_days default;
create table click_dimensions_other partition of click_dimensions default;
create table click_org_dimensions_other partition of click_org_dimensions default;
create table click_visitors_other partition of click_visitors default;
comment on table click_quarters_other is 'Rows of months without a partition.';
comment on table click_days_other is 'Rows of months without a partition.';
comment on table click_org_quarters_other is 'Rows of months without a partition.';
comment on table click_org_days_other is 'Rows of months without a partition.';
comment on table click_dimensions_other is 'Rows of months without a partition.';
comment on table click_org_dimensions_other is 'Rows of months without a partition.';
comment on table click_visitors_other is 'Rows of days without a partition. Control deletes them with the clicks of the day.';
select make_click_figure_partitions(7);

revoke execute on function make_click_figure_partitions(integer), drop_click_figure_partitions(interval) from public;
grant execute on function make_click_figure_partitions(integer), drop_click_figure_partitions(interval) to deeplink_control;
grant select, insert, update, delete on click_quarters, click_org_quarters, click_visitors, click_visitor_days, click_links to deeplink_control;
grant select, insert, update on click_days, click_org_days, click_dimensions, click_org_dimensions, click_organizations to deeplink_control;
grant select, insert on click_agent_rulesets to deeplink_control;
grant update (late) on clicks to deeplink_control;
-- The roll-up claims batches with row locks, and the housekeeping locks the rows that it deletes.
grant delete on click_quarters_other, click_org_quarters_other, click_visitors_other to deeplink_control;
grant select on click_quarters_other, click_org_quarters_other, click_visitors_other to deeplink_control;

-- +goose Down
drop function make_click_figure_partitions(integer), drop_click_figure_partitions(interval);
drop table click_agent_rulesets, click_organizations, click_links, click_visitor_days, click_visitors, click_org_dimensions, click_dimensions,
    click_org_days, click_days, click_org_quarters, click_quarters;
drop index click_logs_created, click_logs_incomplete;
alter table clicks drop column late;
drop type click_dimension;
