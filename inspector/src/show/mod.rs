//! `rejoin show JOB/RANK`: the journal of a rank, read-only, live or after its writer's death.

mod follow;
mod lines;

use crate::cli::ShowOptions;
use crate::exit_code::ExitCode;
use crate::journal;
use crate::output::{self, Format};
use lines::{GrowthLine, HandleLine, JournalLine, LaneLine, Line, RecordLine};

/// Prints a journal; exit 1 if something of it is damaged, 2 if it could not be looked at.
pub fn command(options: &ShowOptions) -> anyhow::Result<ExitCode> {
    let reader = match journal::open(&options.dir, &options.journal) {
        Err(error) if journal::is_damage(&error) => {
            eprintln!("rejoin: {error:#}");
            return Ok(ExitCode::TROUBLE);
        }
        other => other?,
    };
    if options.follow {
        return follow::command(reader, options.format);
    }
    let snapshot = reader.snapshot()?;
    let handles: Vec<HandleLine> = reader.live_handles()?.iter().map(lines::handle).collect();
    let records = lines::records(&snapshot);
    let lanes: Vec<LaneLine> = snapshot.lanes.iter().map(lines::lane).collect();
    let identity = &snapshot.identity;
    let whole = JournalLine {
        job: options.journal.job.clone(),
        rank: identity.rank,
        incarnation: identity.incarnation,
        writer_pid: identity.creator_pid,
        next_step: snapshot.boundary.next_step.unwrap_or(0),
        boundary_sequence: snapshot.boundary.sequence.0,
        setup_records: snapshot.setup.len(),
        step_records: snapshot.step.len(),
        unfinished_records: snapshot.unfinished.len(),
        lost_records: snapshot.lost_count(),
        prepared: reader.prepared()?.iter().map(|prepared| prepared.step).collect(),
        live_handles: handles.len(),
        policy: reader.policy().to_string(),
        growth: reader.growth_segments().into_iter().map(|(segment, bytes)| GrowthLine { segment, bytes }).collect(),
        compacted_records: snapshot.lanes.iter().map(|lane| lane.compacted).sum(),
        finished: snapshot.finished,
        damage: journal::damage(&snapshot),
    };
    let code = if whole.damage.is_empty() { ExitCode::FINE } else { ExitCode::TROUBLE };
    match options.format {
        Format::Json => {
            let records = records.into_iter().map(Line::Record);
            let lanes = lanes.into_iter().map(Line::Lane);
            let handles = handles.into_iter().map(Line::Handle);
            records.chain(lanes).chain(handles).chain([Line::Journal(whole)]).try_for_each(|line| output::json(&line))?;
        }
        Format::Text => output::line(&text(&whole, &records, &lanes, &handles))?,
    }
    Ok(code)
}

fn text(whole: &JournalLine, records: &[RecordLine], lanes: &[LaneLine], handles: &[HandleLine]) -> String {
    let mut lines = head(whole);
    lines.extend(lanes.iter().map(lane_text));
    lines.push(String::new());
    let title = ["SEQUENCE", "REGION", "OUTCOME", "RESULT", "REQUEST"].map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = std::iter::once(title).chain(records.iter().map(record_cells)).collect();
    lines.push(output::table(&rows));
    lines.push(String::new());
    let title = ["HANDLE", "KIND", "OBJECT"].map(str::to_owned).to_vec();
    let cells = |handle: &HandleLine| {
        let object = handle.object.clone().unwrap_or_else(|| "none until recovery rebinds it".to_owned());
        vec![handle.handle.clone(), handle.kind.to_owned(), object]
    };
    let rows: Vec<Vec<String>> = std::iter::once(title).chain(handles.iter().map(cells)).collect();
    lines.push(output::table(&rows));
    lines.join("\n")
}

fn head(whole: &JournalLine) -> Vec<String> {
    let prepared: Vec<String> = whole.prepared.iter().map(u32::to_string).collect();
    let mut lines = vec![
        format!(
            "job {} rank {} incarnation {} (pid {}){}",
            whole.job,
            whole.rank,
            whole.incarnation,
            whole.writer_pid,
            if whole.finished { ", finished in good order" } else { "" }
        ),
        format!(
            "  next step {}: {} set-up records, {} since the last commit (sequence {} on); step {} can be begun again",
            whole.next_step,
            whole.setup_records,
            whole.step_records,
            whole.boundary_sequence,
            if prepared.is_empty() { "none".to_owned() } else { prepared.join(" or ") }
        ),
    ];
    let growth: Vec<String> = whole.growth.iter().map(|g| format!(", segment {} of {} bytes", g.segment, g.bytes)).collect();
    let compacted = match whole.compacted_records {
        0 => String::new(),
        n => format!("; {n} set-up records were left out by compaction"),
    };
    lines.push(format!("  when full: {}{}{compacted}", whole.policy, growth.concat()));
    lines.extend(whole.damage.iter().map(|what| format!("  DAMAGED: {what}")));
    lines
}

fn lane_text(lane: &LaneLine) -> String {
    let owner = match (lane.owner, lane.pid, lane.tid) {
        ("none", ..) => "given back".to_owned(),
        (state, pid, tid) => format!("{state} (pid {}, thread {})", pid.unwrap_or(0), tid.unwrap_or(0)),
    };
    let before = match lane.deaths {
        0 => String::new(),
        deaths => format!("; {deaths} owners died in it before, at most {} records lost", lane.lost),
    };
    format!("  lane {}: {owner}{before}", lane.slot)
}

fn record_cells(record: &RecordLine) -> Vec<String> {
    let result = match (&record.result, &record.value_text) {
        (Some(ok), Some(value)) if ok == "ok" => format!("ok, {value}"),
        (Some(ok), None) if ok == "ok" => ok.clone(),
        (Some(status), _) => format!("failed: {status}"),
        (None, _) if record.outcome == "committed" => "has not returned".to_owned(),
        (None, _) => "was not issued".to_owned(),
    };
    // A control character of a damaged record must not reach the terminal.
    let request = record.request.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    let sequence = record.sequence.map_or("-".to_owned(), |sequence| sequence.to_string());
    vec![sequence, record.region.unwrap_or("-").to_owned(), record.outcome.replace('_', " "), result, request]
}
