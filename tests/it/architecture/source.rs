//! Reads of a Rust source file what the rules need: its code without comments and literals, and
//! every path that it names.

use std::iter::Peekable;

/// A path that a source file names, resolved to start with `crate` or with a crate's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamedPath {
    /// Counted from 1.
    pub(super) line: usize,
    /// Its segments; a glob is the segment `*`.
    pub(super) segments: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Name(String),
    PathSeparator,
    Mark(char),
}

/// The text with every comment and every string and character literal blanked, line by line in
/// place.
pub(super) fn code_only(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = blank_end(&chars, at);
        if end == at {
            code.push(chars[at]);
            at += 1;
        }
        while at < end {
            code.push(if chars[at] == '\n' { '\n' } else { ' ' });
            at += 1;
        }
    }
    code
}

/// Where the comment or literal that begins at `at` ends; `at` itself where none begins.
fn blank_end(chars: &[char], at: usize) -> usize {
    let rest = &chars[at..];
    let length = match rest {
        ['/', '/', ..] => position(rest, |rest| rest[0] == '\n'),
        ['/', '*', ..] => block_comment_length(rest),
        ['"', ..] => escaped_length(rest, '"'),
        ['\'', '\\', ..] => escaped_length(rest, '\''),
        ['\'', _, '\'', ..] => 3,
        ['r', ..] if !follows_name(chars, at) => raw_string_length(rest).unwrap_or(0),
        _ => 0,
    };
    at + length
}

fn position(rest: &[char], is_end: impl Fn(&[char]) -> bool) -> usize {
    (0..rest.len())
        .find(|at| is_end(&rest[*at..]))
        .unwrap_or(rest.len())
}

fn block_comment_length(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn escaped_length(rest: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    rest.len().min(at + 1)
}

/// The length of `r"…"` or `r#"…"#`; none where the `r` begins a name.
fn raw_string_length(rest: &[char]) -> Option<usize> {
    let hashes = position(&rest[1..], |rest| rest[0] != '#');
    let content = 1 + hashes + 1;
    if rest.get(content - 1) != Some(&'"') {
        return None;
    }
    let is_end = |rest: &[char]| {
        rest[0] == '"' && rest.len() > hashes && rest[1..=hashes].iter().all(|mark| *mark == '#')
    };
    let length = content + position(&rest[content..], is_end) + 1 + hashes;
    Some(length.min(rest.len()))
}

/// Whether the character before belongs to a name. The prefixes of byte and C strings do not.
fn follows_name(chars: &[char], at: usize) -> bool {
    let is_in_name = |at: usize| chars[at].is_alphanumeric() || chars[at] == '_';
    match at {
        0 => false,
        1 => is_in_name(0) && !matches!(chars[0], 'b' | 'c'),
        _ => is_in_name(at - 1) && (!matches!(chars[at - 1], 'b' | 'c') || is_in_name(at - 2)),
    }
}

/// Every path in a source file: what its `use` items name, braces expanded, and what stands in its
/// code with at least one `::`. `module` is the file's own path, `["crate", "filter", …]`.
pub(super) fn named_paths(text: &str, module: &[String]) -> Vec<NamedPath> {
    let code = code_only(text);
    let mut tokens = tokens(&code).into_iter().peekable();
    let mut found = Vec::new();
    let mut depth = 0_usize;
    // Modules that stand in the file, each with the depth of braces around it.
    let mut inner_modules: Vec<(usize, String)> = Vec::new();
    let mut last_module_name = None;
    while let Some((line, token)) = tokens.next() {
        let mut raw = Vec::new();
        match token {
            Token::Name(name) if name == "use" => use_tree(&mut tokens, Vec::new(), &mut raw),
            Token::Name(name) if name == "mod" => last_module_name = next_name(&mut tokens),
            Token::Name(name) => raw.extend(inline_path(name, line, &mut tokens)),
            Token::Mark('{') => {
                depth += 1;
                inner_modules.extend(last_module_name.take().map(|name| (depth, name)));
            }
            Token::Mark('}') => {
                inner_modules.retain(|(inside, _)| *inside != depth);
                depth = depth.saturating_sub(1);
            }
            Token::Mark(';') => last_module_name = None,
            Token::PathSeparator | Token::Mark(_) => {}
        }
        let mut place = module.to_vec();
        place.extend(inner_modules.iter().map(|(_, name)| name.clone()));
        found.extend(raw.into_iter().map(|path| resolve(path, &place)));
    }
    found
}

type Tokens = Peekable<std::vec::IntoIter<(usize, Token)>>;

fn tokens(code: &str) -> Vec<(usize, Token)> {
    let mut tokens = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let mut chars = line.chars().peekable();
        while let Some(first) = chars.next() {
            let token = if first.is_alphanumeric() || first == '_' {
                let mut name = String::from(first);
                while let Some(next) = chars.next_if(|next| next.is_alphanumeric() || *next == '_')
                {
                    name.push(next);
                }
                Token::Name(name)
            } else if first == ':' && chars.next_if_eq(&':').is_some() {
                Token::PathSeparator
            } else if first.is_whitespace() {
                continue;
            } else {
                Token::Mark(first)
            };
            tokens.push((number + 1, token));
        }
    }
    tokens
}

fn next_name(tokens: &mut Tokens) -> Option<String> {
    let (_, token) = tokens.next_if(|(_, token)| matches!(token, Token::Name(_)))?;
    match token {
        Token::Name(name) => Some(name),
        Token::PathSeparator | Token::Mark(_) => None,
    }
}

/// Reads one tree of a `use` item, up to the comma, brace or semicolon behind it.
fn use_tree(tokens: &mut Tokens, mut path: Vec<String>, found: &mut Vec<NamedPath>) {
    let mut line = 0;
    while let Some((at, token)) = tokens.next_if(|(_, token)| !is_tree_end(token)) {
        line = at;
        match token {
            // The name after `as` is of no interest: what it stands for is known.
            Token::Name(name) if name == "as" => drop(tokens.next()),
            Token::Name(name) => path.push(name),
            Token::Mark('*') => path.push("*".to_owned()),
            Token::Mark('{') => {
                while !matches!(tokens.peek(), None | Some((_, Token::Mark('}')))) {
                    use_tree(tokens, path.clone(), found);
                    tokens.next_if(|(_, token)| *token == Token::Mark(','));
                }
                tokens.next();
                return;
            }
            Token::PathSeparator | Token::Mark(_) => {}
        }
    }
    // `use a::{self}` names `a`.
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    if !path.is_empty() {
        found.push(NamedPath {
            line,
            segments: path,
        });
    }
}

fn is_tree_end(token: &Token) -> bool {
    matches!(token, Token::Mark(',' | '}' | ';'))
}

fn inline_path(first: String, line: usize, tokens: &mut Tokens) -> Option<NamedPath> {
    let mut segments = vec![first];
    while tokens
        .next_if(|(_, token)| *token == Token::PathSeparator)
        .is_some()
    {
        match next_name(tokens) {
            Some(name) => segments.push(name),
            None => break,
        }
    }
    (segments.len() > 1).then_some(NamedPath { line, segments })
}

/// Makes a path that starts with `self` or `super` start with `crate`.
fn resolve(path: NamedPath, module: &[String]) -> NamedPath {
    let mut place = module.to_vec();
    let mut rest = path.segments.as_slice();
    let mut is_relative = false;
    while let [first, others @ ..] = rest {
        match first.as_str() {
            "super" => drop(place.pop()),
            "self" => {}
            _ => break,
        }
        is_relative = true;
        rest = others;
    }
    if !is_relative {
        return path;
    }
    place.extend_from_slice(rest);
    NamedPath {
        line: path.line,
        segments: place,
    }
}
