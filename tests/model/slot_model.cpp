// Explicit-state explorer of the slot protocol (see README.md beside it). BFS: the first trace found is a shortest one.
// usage: ./slot_model key=value ...     (keys: see struct Cfg). Exit 0 = all states explored, no violation; 1 = violation; 2 = out of states.
#include <cstdio>
#include <cstdint>
#include <cstring>
#include <cstdlib>
#include <string>
#include <vector>
#include <map>
#include <algorithm>
#include <unordered_set>
using namespace std;
typedef uint8_t u8;
struct Cfg { map<string,int> v;
  int& operator[](const char*k){return v[k];} };
static int nst=2,nsl=1,nrq=1,deaths=1,repl=1,H=1,LIM=2;
static int level_=0,inplace=0,tfirst=0,genbuf=0,tso=0,margin=1,margin2=0,membar=0,hazard=0,lateborn=0,dropclear=1,zeroinit=0,norep=0,
           markcond=0,genalways=0,deadline=0,killer=0,nonidem=0,pause_=0,whole=0,nocheck=0,checkfirst=0,stalepick=1,freeholder=1,privcopy=0,scanfree=0,atomiclate=0,coal=0;
static long maxstates=60000000;
enum {UNB,LIVE,DEAD,REAPED};
enum {NONE_,GOT,PUB,OKC,MINE,RUN,WROTE,HN,SENT,DROP};
static const char*PH[]={"-","got","published","check-ok","mine","run","wrote","holder-next","sent","drop"};
enum {FREE,HELD,ORPH,COND,WAITS,COND0};  // WAITS: hop is with the broker (rerun in place / no_replica); COND0: t noted or generation written, not both
#define MI 7
#define MS 2
#define MR 3
#define MM 12
struct Held{u8 slot,gen,ph,val,nxt,bad,kind;};
struct Inst{u8 stage,st,onb,known,pub,bufu,bufv,bufi,scan,init; Held h[2];};
struct Slot{u8 st,gen,vis,hf,ht,pg,ps,pbad,req,tn,mg,wait,resume,dirty;};   // vis: generation as others see it; pg/ps: payload's generation/stage
struct Req{u8 st,ans,ret,marks,runs0,runs1,src,kd;};
struct Msg{u8 slot,gen,from,to,kind;};
struct S{Inst in[MI];Slot sl[MS];Req rq[MR];Msg m[MM];u8 nm,d;};
static const u8 NOPUB=0xFF;
static string viol;
static u8 emptyv(){return hazard?0:NOPUB;}
static int ni;
static bool lessm(const Msg&a,const Msg&b){return memcmp(&a,&b,sizeof a)<0;}
static void canon(S&s){ sort(s.m,s.m+s.nm,lessm); for(int i=s.nm;i<MM;i++)memset(&s.m[i],0,sizeof(Msg));
  for(int i=1;i<=ni;i++)if(s.in[i-1].st>=DEAD){ Inst&x=s.in[i-1]; if(x.bufu)x.pub=x.bufv; x.bufu=x.bufv=x.bufi=0; if(x.st==REAPED)x.pub=0; /* a dead process's stores all land; its words stay until it is reaped */
     if(x.st==REAPED||true){ for(int k=0;k<2;k++){ if(x.st==REAPED||x.h[k].ph!=RUN)memset(&x.h[k],0,sizeof(Held)); } } } }
struct Succ{S s;string a;bool env;};
static void addmsg(S&s,u8 slot,u8 gen,u8 from,u8 to,u8 kind){ if(s.nm>=MM){viol="MODEL: too many messages";return;} s.m[s.nm++]={slot,gen,from,to,kind}; }
static void delmsg(S&s,int i){ for(int k=i;k+1<s.nm;k++)s.m[k]=s.m[k+1]; s.nm--; }
static u8 tmask(const S&s){u8 b=0;for(int i=0;i<nsl;i++)if(s.sl[i].tn)b|=1<<i;return b;}
static u8 pubval(const Inst&x){ // what the process would publish now
  if(hazard){u8 b=0;for(int k=0;k<H;k++)if(x.h[k].ph>=PUB)b|=1<<x.h[k].slot;return b;}
  u8 b=NOPUB;for(int k=0;k<H;k++)if(x.h[k].ph>=PUB)b=(b==NOPUB)?x.h[k].val:(b&x.h[k].val);return b;}
static bool canstore(const Inst&x){return !tso||!x.bufu;}
static void store(S&s,Inst&x,u8 v){ if(v==x.pub&&!x.bufu)return; if(!tso){x.pub=v;return;} x.bufu=1;x.bufv=v;x.bufi=tmask(s);}
static void drain(Inst&x){ if(x.bufu){x.pub=x.bufv;x.bufu=x.bufv=x.bufi=0;} }
static string nm(const S&s,int i){ if(i==0)return "B"; string r=string(1,"PQR"[s.in[i-1].stage]); return r+to_string(i);}
static void dropbits(S&s,int k){ u8 m=~(1<<k); if(hazard)return; for(int i=0;i<ni;i++){Inst&x=s.in[i]; if(x.st!=LIVE){if(x.st==DEAD&&x.pub!=NOPUB)x.pub&=m;continue;} if(x.pub!=NOPUB)x.pub&=m; if(x.bufu){if(x.bufv!=NOPUB)x.bufv&=m;x.bufi&=m;}
   for(int j=0;j<H;j++)x.h[j].val&=m;} }
static void answer(S&s,int r){ s.rq[r].ans++; s.rq[r].st=3; s.rq[r].src=0; if(s.rq[r].ans>1)viol="(3) request answered twice"; }
static bool stagelive(const S&s,int g){for(int i=0;i<ni;i++)if(s.in[i].stage==g&&s.in[i].st!=UNB&&s.in[i].onb==1&&s.in[i].st!=REAPED)return true;return false;}
static void tofree(S&s,int k){Slot&z=s.sl[k]; dropbits(s,k); z.st=FREE;z.req=0;z.tn=z.mg=z.wait=z.resume=0; if(freeholder){z.hf=z.ht=0;} }
static u8 aliveset(const S&s){u8 w=0;for(int i=0;i<ni;i++)if((s.in[i].st==LIVE||s.in[i].st==DEAD)&&s.in[i].known)w|=1<<i;return w;}
static void bump(S&s,int k){Slot&z=s.sl[k]; z.gen++; if(genbuf&&!membar)z.dirty=1; else z.vis=z.gen; if(membar){for(int i=0;i<ni;i++)drain(s.in[i]);} }
static void settle(S&s,int k,bool incall){ // the request of a condemned slot: answered or re-run
  Slot&z=s.sl[k]; if(!z.req)return; int r=z.req-1; Req&q=s.rq[r];
  if(q.st==3){z.req=0;return;}
  bool over=false;
  if(nonidem==r+1)over=true; else if(incall){ if(++q.marks>=2)over=true; } else { if(++q.ret>LIM)over=true; }
  if(over){answer(s,r);z.req=0;return;}
  if(inplace){q.st=1;} else { q.st=2;q.src=privcopy?0:k+1; if(privcopy)z.req=0; } }
static void condemn(S&s,int k,bool incall){ Slot&z=s.sl[k]; settle(s,k,incall);
  if(tfirst){z.st=COND0;z.tn=1;z.wait=aliveset(s);}
  else {bump(s,k);z.wait=aliveset(s); if(margin2){z.st=COND;z.tn=0;z.mg=0;} else {z.st=COND;z.tn=1;z.mg=0;} } }
static bool incallof(const Inst&x,int k,u8 g){for(int j=0;j<H;j++)if(x.h[j].ph==RUN&&x.h[j].slot==k&&x.h[j].gen==g)return true;return false;}
static void push(vector<Succ>&o,S&n,const string&a,bool env){ canon(n); o.push_back({n,a,env}); }
static void succ(const S&s,vector<Succ>&o){ char b[200];
  // --- stage processes
  for(int i=1;i<=ni;i++){ const Inst&x=s.in[i-1];
    if(x.st==LIVE){ string me=nm(s,i);
      if(x.bufu){S n=s;drain(n.in[i-1]);push(o,n,me+": its store of 'held' becomes visible",false);}
      if(zeroinit==1&&!x.init){S n=s;n.in[i-1].init=1;n.in[i-1].pub=emptyv();/* process initialises its own word */ if(zeroinit==1)push(o,n,me+": initialises its column",false);}
      int fr=-1,oth=-1;for(int k=0;k<H;k++){if(x.h[k].ph==NONE_&&fr<0)fr=k;}
      bool unp=false;for(int k=0;k<H;k++)if(x.h[k].ph==GOT||x.h[k].ph==PUB)unp=true; (void)oth;
      if(fr>=0&&!unp)for(int m=0;m<s.nm;m++)if(s.m[m].to==i){ if(m&&!memcmp(&s.m[m],&s.m[m-1],sizeof(Msg)))continue; S n=s;Held&h=n.in[i-1].h[fr];h={s.m[m].slot,s.m[m].gen,GOT,0,0,0,0};delmsg(n,m);
          snprintf(b,200,"%s: receives hop(slot %d, gen %d)",me.c_str(),h.slot,h.gen);push(o,n,b,false);}
      for(int k=0;k<H;k++){const Held&h=x.h[k]; S n=s;Inst&y=n.in[i-1];Held&g=y.h[k];Slot&z=n.sl[h.slot];
        switch(h.ph){
        case GOT: if(checkfirst){ if(nocheck||z.vis==h.gen){g.ph=PUB;g.val=tmask(s);/* checked, not yet published */} else {memset(&g,0,sizeof g);} push(o,n,me+": checks generation BEFORE publishing",false);}
          else if(canstore(x)){g.ph=PUB;g.val=tmask(s);store(n,y,pubval(y));push(o,n,me+": publishes held",false);} break;
        case PUB: if(checkfirst){ if(canstore(x)){g.ph=OKC;store(n,y,pubval(y));push(o,n,me+": publishes held",false);} }
          else if(nocheck||z.vis==h.gen){g.ph=OKC;snprintf(b,200,"%s: reads generation %d of slot %d = hop's: goes on",me.c_str(),z.vis,h.slot);push(o,n,b,false);}
          else {if(dropclear)g.ph=DROP;else memset(&g,0,sizeof g);snprintf(b,200,"%s: reads generation %d of slot %d, hop has %d: drops it",me.c_str(),z.vis,h.slot,h.gen);push(o,n,b,false);} break;
        case OKC: g.ph=MINE;z.hf=z.ht=i;push(o,n,me+": writes holder=(me,me) in slot "+to_string(h.slot),false);break;
        case MINE:{ g.ph=RUN; g.bad=(z.pg!=h.gen||z.ps!=x.stage||z.pbad); int r=-1; for(int q=0;q<nrq;q++)if(s.sl[h.slot].req==q+1)r=q;
            if(r>=0&&s.sl[h.slot].gen==h.gen){u8&c=(x.stage==0?n.rq[r].runs0:n.rq[r].runs1);if(c<9&&x.stage<2)c++;
              if(nonidem==r+1&&c>1)viol="(6) a non-idempotent request ran twice in one stage";
              if(c>1+n.rq[r].ret+n.rq[r].marks)viol="(6) a request ran more often than the retry table counts"; }
            if(killer&&x.stage==1&&((r<0?(s.sl[h.slot].st==COND?s.sl[h.slot].req:0):r+1)==killer||(r==killer-1))){ int rr=killer-1; y.st=DEAD; n.rq[rr].kd++; if(n.rq[rr].kd>2)viol="(6) a killer request cost a third death"; push(o,n,me+": runs the killer request: dies in the call",false);} 
            else push(o,n,me+": starts the run, reads slot "+to_string(h.slot),false);} break;
        case RUN: g.ph=WROTE; z.pg=h.gen;z.ps=x.stage+1;z.pbad=h.bad; snprintf(b,200,"%s: writes payload of slot %d (as gen %d)",me.c_str(),h.slot,h.gen);push(o,n,b,false);break;
        case WROTE: if(x.stage==nst-1){g.ph=HN;g.nxt=0;z.hf=i;z.ht=0;push(o,n,me+": writes holder=(me,B)",false);}
           else { bool any=false; for(int j=1;j<=ni;j++)if(s.in[j-1].st!=UNB&&s.in[j-1].stage==x.stage+1&&(s.in[j-1].onb==1||(s.in[j-1].onb==2&&stalepick))){ if(s.in[j-1].onb==1)any=true; S w=s;Held&gw=w.in[i-1].h[k];gw.ph=HN;gw.nxt=j;w.sl[h.slot].hf=i;w.sl[h.slot].ht=j;
                 push(o,w,me+": writes holder=(me,"+nm(s,j)+") in slot "+to_string(h.slot)+(s.in[j-1].onb==2?" [its view of the endpoint is old]":""),false);}
               if(!any){g.ph=HN;g.nxt=0;g.kind=1;z.hf=i;z.ht=0;push(o,n,me+": no live replica: writes holder=(me,B)",false);} } break;
        case HN: { g.ph=SENT;addmsg(n,h.slot,h.gen,i,h.nxt,h.kind);push(o,n,me+": sends hop to "+(h.nxt?nm(s,h.nxt):string("B"))+(h.kind?" (NO_REPLICA)":""),false);
            if(coal&&k==0&&H==2&&x.h[1].ph==HN&&x.h[1].nxt==h.nxt){S w=n;w.in[i-1].h[1].ph=SENT;addmsg(w,x.h[1].slot,x.h[1].gen,i,h.nxt,x.h[1].kind);push(o,w,me+": sends both hops in one message",false);} } break;
        case SENT: case DROP: if(canstore(x)){memset(&g,0,sizeof g);store(n,y,pubval(y));push(o,n,me+": clears/advances held",false);} break;
        } }
      if(s.d<deaths){S n=s;n.in[i-1].st=DEAD;n.d++;push(o,n,me+": DIES",true);}
      if(whole){bool sick=false;for(int j=0;j<ni;j++)if(s.in[j].st==DEAD)sick=true; if(sick){S n=s;n.in[i-1].st=DEAD;push(o,n,me+": killed with its chain",false);} }
    }
    if(x.st==DEAD){ bool ok=true; if(whole)for(int j=0;j<ni;j++)if(s.in[j].st==LIVE)ok=false;
      if(ok){S n=s;Inst&y=n.in[i-1];y.st=REAPED;y.onb=2;y.scan=level_?0:(1<<nsl)-1; string t;
      // marks: the slots of the running call are read now, whatever the slot's state is (rule markcond) or only for slots condemned now
      for(int k=0;k<nsl;k++){ Slot&z=n.sl[k]; bool named=(z.hf==i||z.ht==i);
         if(level_||true){ if((z.st==HELD||z.st==ORPH)&&named&&(level_)){ bool ic=incallof(s.in[i-1],k,z.gen); condemn(n,k,ic); t+=" slot "+to_string(k)+" CONDEMNED -> gen "+to_string(z.gen); }
           else if((z.st==COND)&&markcond&&z.req&&incallof(s.in[i-1],k,z.gen-1)){int r=z.req-1; if(n.rq[r].st!=3&&nonidem!=r+1){ if(++n.rq[r].marks>=2){answer(n,r);z.req=0;} t+=" (mark on condemned slot)";} } } }
      if(!level_){ // edge: scan slot by slot, as separate steps; keep call info
         for(int k=0;k<nsl;k++){ Slot&z=n.sl[k]; if((z.st==HELD||z.st==ORPH)&&(z.hf==i||z.ht==i)&&incallof(s.in[i-1],k,z.gen)){condemn(n,k,true);y.scan&=~(1<<k);t+=" slot "+to_string(k)+" CONDEMNED (in call) -> gen "+to_string(z.gen);} } }
      push(o,n,nm(s,i)+": reaped;"+t,false);} }
    if(x.st==REAPED&&x.scan)for(int k=0;k<nsl;k++)if(x.scan>>k&1){S n=s;Slot&z=n.sl[k];n.in[i-1].scan&=~(1<<k); bool c=false; if((z.st==HELD||z.st==ORPH||(scanfree&&z.st==FREE))&&(z.hf==i||z.ht==i)){condemn(n,k,false);c=true;}
        snprintf(b,200,"B: reap scan of %s: slot %d holder=(%s,%s): %s",nm(s,i).c_str(),k,nm(s,z.hf).c_str(),nm(s,z.ht).c_str(),c?"CONDEMNED":"not named");push(o,n,b,false);}
    // restart
    if(x.st==REAPED&&x.init!=9&&!x.scan){ bool ok=true; if(whole){for(int j=0;j<ni;j++)if(s.in[j].st==LIVE||s.in[j].st==DEAD)ok=false; for(int k=0;k<nsl;k++)if(s.sl[k].st==HELD||s.sl[k].st==ORPH)ok=false;}
      if(ok&&whole){S n=s;for(int q=0;q<ni;q++)if(n.in[q].st==REAPED&&n.in[q].init!=9)for(int j=0;j<ni;j++)if(n.in[j].st==UNB){Inst&y=n.in[j];memset(&y,0,sizeof y);y.stage=n.in[q].stage;y.st=LIVE;y.onb=1;y.known=1;y.pub=emptyv();y.init=1;n.in[q].init=9;break;}
        push(o,n,"chain restarted",false);continue;}
      if(ok)for(int j=1;j<=ni;j++)if(s.in[j-1].st==UNB){S n=s;Inst&y=n.in[j-1];memset(&y,0,sizeof y);y.stage=x.stage;y.st=LIVE;y.onb=1;y.known=!lateborn;y.pub=zeroinit?0:emptyv();y.init=zeroinit?0:1;n.in[i-1].init=9;
        push(o,n,nm(n,j)+": started (replaces "+nm(s,i)+")"+(lateborn?", senders see it, broker not yet":""),false);break;} }
    if(x.st!=UNB&&!x.known){S n=s;n.in[i-1].known=1;push(o,n,"B: learns of "+nm(s,i),false);}
  }
  // --- pipes
  for(int m=0;m<s.nm;m++){ const Msg&g=s.m[m]; if(m&&!memcmp(&s.m[m],&s.m[m-1],sizeof(Msg)))continue;
    bool fd=g.from&&s.in[g.from-1].st>=DEAD, td=g.to&&s.in[g.to-1].st>=DEAD;
    if(fd||td){S n=s;delmsg(n,m);push(o,n,"pipe: hop(slot "+to_string(g.slot)+", gen "+to_string(g.gen)+") "+nm(s,g.from)+"->"+nm(s,g.to)+" is lost",!td);}
    if(g.to==0){ S n=s;delmsg(n,m);Slot&z=n.sl[g.slot];
      if(z.gen!=g.gen||!(z.st==HELD||z.st==ORPH)){ snprintf(b,200,"B: sink: stale hop(slot %d, gen %d) dropped",g.slot,g.gen);push(o,n,b,false);}
      else { int r=z.req-1; string t="B: sink: hop(slot "+to_string(g.slot)+", gen "+to_string(g.gen)+(g.kind?") NO_REPLICA":") returns");
        if(z.st==ORPH){tofree(n,g.slot);t+=": orphan freed";}
        else if(g.kind){ bool over=false; if(norep==1){ if(nonidem==r+1||++n.rq[r].ret>LIM)over=true; } 
            if(over){answer(n,r);tofree(n,g.slot);} else {z.st=WAITS; if(freeholder){z.hf=z.ht=0;} z.resume=(norep==2)?z.ps:0; if(norep!=2){z.ps=0;z.pbad=0;} } }
        else { if(z.pg!=g.gen||z.ps!=nst||z.pbad)viol="(2) an answer from a payload that mixes generations"; answer(n,r);tofree(n,g.slot);t+=": answered, FREE"; }
        push(o,n,t,false);} } }
  // --- broker
  bool anyc=false;for(int k=0;k<nsl;k++)if(s.sl[k].st==COND||s.sl[k].st==COND0)anyc=true;
  bool held=pause_&&anyc; if(whole){bool all=true;for(int g=0;g<nst;g++)if(!stagelive(s,g))all=false;for(int i=0;i<ni;i++)if(s.in[i].st==DEAD)all=false; held=held||!all;}
  for(int r=0;r<nrq&&!held;r++){ const Req&q=s.rq[r]; if(q.st!=0&&q.st!=2)continue; if(q.st==0){bool earlier=false;for(int p=0;p<r;p++)if(s.rq[p].st==0)earlier=true;if(earlier)continue;}
    for(int k=0;k<nsl;k++)if(s.sl[k].st==FREE){ for(int j=1;j<=ni;j++){const Inst&x=s.in[j-1]; if(x.stage!=0||!x.known||!(x.st==LIVE||x.st==DEAD))continue;
        S n=s;Slot&z=n.sl[k]; if(q.src){n.sl[q.src-1].req=0;} if(genalways){z.gen++;z.vis=z.gen;} z.st=HELD;z.req=r+1;z.pg=z.gen;z.ps=0;z.pbad=0;z.hf=0;z.ht=j;z.resume=0;n.rq[r].st=1;n.rq[r].src=0;addmsg(n,k,z.gen,0,j,0);
        snprintf(b,200,"B: request %d -> slot %d gen %d, holder=(B,%s), sends",r,k,z.gen,nm(s,j).c_str());push(o,n,b,false);} break; } }
  for(int k=0;k<nsl;k++){ const Slot&z=s.sl[k];
    if(z.st==WAITS&&!held){ bool rdy=true;for(int g=0;g<nst;g++)if(!stagelive(s,g))rdy=false; if(rdy)for(int j=1;j<=ni;j++){const Inst&x=s.in[j-1]; if(x.stage!=z.resume||!x.known||!(x.st==LIVE||x.st==DEAD)||x.onb!=1)continue;
        S n=s;Slot&w=n.sl[k];w.st=HELD;w.pg=w.gen;w.ps=z.resume;w.hf=0;w.ht=j;w.resume=0;addmsg(n,k,w.gen,0,j,0);push(o,n,"B: slot "+to_string(k)+" gen "+to_string(w.gen)+" dispatched again to "+nm(s,j),false);} }
    if(level_&&(z.st==HELD||z.st==ORPH)){int c=0;if(z.hf&&s.in[z.hf-1].st==REAPED)c=z.hf;if(z.ht&&s.in[z.ht-1].st==REAPED)c=z.ht; if(whole)for(int i=0;i<ni;i++)if(s.in[i].st==REAPED&&s.in[i].init!=9)c=i+1;
      if(c){S n=s;condemn(n,k,false);push(o,n,"B: tick: slot "+to_string(k)+" CONDEMNED, dead "+nm(s,c)+"; gen "+to_string(n.sl[k].gen),false);} }
    if(z.dirty){S n=s;n.sl[k].vis=z.gen;n.sl[k].dirty=0;push(o,n,"B: its store of generation "+to_string(z.gen)+" becomes visible",false);}
    if(z.st==COND0){S n=s;bump(n,k);n.sl[k].st=COND;push(o,n,"B: writes generation+1 of slot "+to_string(k)+" (t was noted before)",false);}
    if(z.st==COND&&margin2&&!z.tn&&!z.dirty){S n=s;n.sl[k].tn=1;n.sl[k].wait=aliveset(s);push(o,n,"B: t2 = t + margin noted for slot "+to_string(k),false);}
    if(z.st==COND&&z.tn&&margin&&!z.mg&&!membar){bool ok=!z.dirty;for(int i=0;i<ni;i++)if(s.in[i].st==LIVE&&s.in[i].bufu&&!(s.in[i].bufi>>k&1))ok=false; if(ok){S n=s;n.sl[k].mg=1;push(o,n,"B: margin over for slot "+to_string(k),false);} }
    if(z.st==COND&&z.tn&&(!margin||z.mg||membar)){
      for(int i=0;i<ni;i++)if(z.wait>>i&1){const Inst&x=s.in[i]; bool q=false; if(x.st==REAPED)q=true; else if(whole)q=false; else if(hazard)q=!(x.pub>>k&1); else if(pause_)q=x.pub==NOPUB; else q=(x.pub==NOPUB)||(x.pub>>k&1);
          if(q){S n=s;n.sl[k].wait&=~(1<<i);push(o,n,"B: "+nm(s,i+1)+" is quiet (or reaped) for slot "+to_string(k),false);} }
      if(!z.wait){ bool src=false;for(int r=0;r<nrq;r++)if(s.rq[r].st==2&&s.rq[r].src==k+1)src=true;
        if(inplace&&z.req&&s.rq[z.req-1].st!=3){S n=s;Slot&w=n.sl[k];dropbits(n,k);w.st=WAITS;w.tn=w.mg=0;w.hf=w.ht=0;w.pg=w.gen;w.ps=0;w.pbad=0;w.resume=0;push(o,n,"B: slot "+to_string(k)+" quiet: re-run in place",false);}
        else if(!src){S n=s;tofree(n,k);push(o,n,"B: slot "+to_string(k)+" FREE (reclaimed)",false);} } }
  }
  if(deadline)for(int r=0;r<nrq;r++){const Req&q=s.rq[r]; if(q.st==1||q.st==2){S n=s;answer(n,r);string t; for(int k=0;k<nsl;k++)if(n.sl[k].req==r+1){ if(n.sl[k].st==HELD)n.sl[k].st=ORPH; else if(n.sl[k].st==WAITS)tofree(n,k); else n.sl[k].req=0; } push(o,n,"B: deadline of request "+to_string(r)+": answered early",true);} }
}
static bool inv(const S&s){
  for(int i=0;i<ni;i++)if(s.in[i].st==LIVE)for(int k=0;k<H;k++){const Held&h=s.in[i].h[k]; if(h.ph>=OKC&&h.ph<=HN){const Slot&z=s.sl[h.slot]; if(z.st!=COND&&z.st!=COND0&&z.gen!=h.gen){viol="(1) "+nm(s,i+1)+" may still write slot "+to_string(h.slot)+" as gen "+to_string(h.gen)+" while the slot is "+(z.st==FREE?"FREE":"in its next life")+" (gen "+to_string(z.gen)+")";return false;} } }
  for(int k=0;k<nsl;k++)if(s.sl[k].st==HELD||s.sl[k].st==ORPH||s.sl[k].st==WAITS){int c=s.sl[k].st==WAITS; for(int m=0;m<s.nm;m++)if(s.m[m].slot==k&&s.m[m].gen==s.sl[k].gen)c++; for(int i=0;i<ni;i++)if(s.in[i].st==LIVE)for(int j=0;j<H;j++){const Held&h=s.in[i].h[j];if(h.ph&&h.ph<SENT&&h.slot==k&&h.gen==s.sl[k].gen)c++;} if(c>1){viol="(1b) two live hops for one slot and generation";return false;} }
  return true; }
static uint64_t hsh(const S&s){const uint8_t*p=(const uint8_t*)&s;uint64_t h=1469598103934665603ull;for(size_t i=0;i<sizeof s;i++){h^=p[i];h*=1099511628211ull;} h^=h>>29;h*=0xbf58476d1ce4e5b9ull;h^=h>>32;return h;}
static vector<S> all_; static vector<uint32_t> par; 
int main(int c,char**v){ map<string,int*> K={{"stages",&nst},{"slots",&nsl},{"reqs",&nrq},{"deaths",&deaths},{"replicas",&repl},{"hold",&H},{"limit",&LIM},{"level",&level_},{"inplace",&inplace},{"tfirst",&tfirst},{"genbuf",&genbuf},{"tso",&tso},{"margin",&margin},{"margin2",&margin2},{"membar",&membar},{"hazard",&hazard},{"lateborn",&lateborn},{"dropclear",&dropclear},{"zeroinit",&zeroinit},{"norep",&norep},{"markcond",&markcond},{"genalways",&genalways},{"deadline",&deadline},{"killer",&killer},{"nonidem",&nonidem},{"pause",&pause_},{"whole",&whole},{"nocheck",&nocheck},{"checkfirst",&checkfirst},{"stalepick",&stalepick},{"freeholder",&freeholder},{"privcopy",&privcopy},{"scanfree",&scanfree},{"coal",&coal}};
  int walks=0;K["walks"]=&walks;int quiet=0;K["quiet"]=&quiet; int mx=60;K["max_m"]=&mx;
  for(int i=1;i<c;i++){string a=v[i];size_t e=a.find('=');string k=a.substr(0,e); if(!K.count(k)){printf("unknown key %s\n",k.c_str());return 3;} *K[k]=atoi(a.c_str()+e+1);} maxstates=(long)mx*1000000;
  S s0;memset(&s0,0,sizeof s0); int n=0; for(int g=0;g<nst;g++)for(int r=0;r<((g==1)?repl:1);r++){Inst&x=s0.in[n++];x.stage=g;x.st=LIVE;x.onb=1;x.known=1;x.init=zeroinit?0:1;x.pub=zeroinit?0:emptyv();}
  ni=min(MI,n+(whole?nst*deaths:deaths)+(killer?3:0)); if(n+(whole?nst*deaths:deaths)+(killer?3:0)>MI){printf("needs more instances\n");return 3;}
  for(int k=0;k<nsl;k++){s0.sl[k].gen=s0.sl[k].vis=1;}
  if(walks){ uint64_t rs=88172645463325252ull; vector<Succ> w; long steps=0,q=0; canon(s0); for(long i=0;i<walks;i++){ S x=s0; vector<string> tr; for(;;){ w.clear();viol="";succ(x,w); if(!viol.empty()){printf("WALK %ld: %s (one of the next actions)\n",i,viol.c_str());for(auto&l:tr)printf("  %s\n",l.c_str());for(auto&y:w)if(!y.env)printf("   next? %s\n",y.a.c_str());return 1;}
      bool prog=false;for(auto&y:w)if(!y.env)prog=true; if(!prog){q++;bool ok=true;for(int r=0;r<nrq;r++)if(x.rq[r].st!=3||x.rq[r].ans!=1)ok=false;for(int k=0;k<nsl;k++)if(x.sl[k].st!=FREE)ok=false; if(!ok){printf("WALK %ld: stuck\n",i);for(auto&l:tr)printf("  %s\n",l.c_str());return 1;} break;}
      rs^=rs<<13;rs^=rs>>7;rs^=rs<<17; size_t c=rs%w.size(); if(w[c].env&&((rs>>20)%4)){ rs^=rs<<13;rs^=rs>>7;rs^=rs<<17; c=rs%w.size(); } tr.push_back(w[c].a); x=w[c].s; steps++; if(!inv(x)){printf("WALK %ld: %s\n",i,viol.c_str());for(auto&l:tr)printf("  %s\n",l.c_str());return 1;} } }
    printf("OK (random): %ld walks, %ld steps, all ended well\n",q,steps);return 0; }
  unordered_set<uint64_t> seen; seen.reserve(1<<22); canon(s0); all_.push_back(s0);par.push_back(0);seen.insert(hsh(s0)); vector<Succ> o; string bad; uint32_t at=0; string lasta; S fin; long quies=0;
  for(size_t q=0;q<all_.size();q++){ o.clear(); viol=""; S cur=all_[q]; 
    // successors one by one so that a violation set inside an action is attributed to it
    succ(cur,o);
    if(!viol.empty()){ // find which: recompute by invariant on actions is not possible; report state and list
      bad=viol;at=q; lasta="(one of the next actions does it)"; 
      fin=cur;break;}
    bool prog=false; for(auto&x:o){ if(!x.env)prog=true; uint64_t h=hsh(x.s); if(seen.insert(h).second){ all_.push_back(x.s);par.push_back(q); if(!inv(x.s)){bad=viol;at=all_.size()-1;lasta="";goto out;} } }
    if(!prog){ quies++; string w; for(int r=0;r<nrq;r++)if(cur.rq[r].st!=3||cur.rq[r].ans!=1)w+=" request "+to_string(r)+" never answered;"; for(int k=0;k<nsl;k++)if(cur.sl[k].st!=FREE){static const char*N[]={"FREE","HELD","ORPHAN","CONDEMNED","WAITS","COND0"};w+=" slot "+to_string(k)+" stays "+N[cur.sl[k].st]+";";}
      if(!w.empty()){bad="(4/5) nothing more happens:"+w;at=q;break;} }
    if((long)all_.size()>maxstates){printf("BOUND: %zu states, queue at %zu, no violation so far\n",all_.size(),q);return 2;}
  }
 out:
  if(bad.empty()){printf("OK: %zu states, %ld final states\n",all_.size(),quies);return 0;}
  printf("VIOLATION %s   (%zu states)\n",bad.c_str(),all_.size()); if(quiet)return 1;
  vector<uint32_t> path; for(uint32_t x=at;;x=par[x]){path.push_back(x);if(x==0)break;} reverse(path.begin(),path.end()); int no=1;
  for(size_t i=0;i+1<path.size();i++){ o.clear();succ(all_[path[i]],o);uint64_t h=hsh(all_[path[i+1]]);for(auto&x:o)if(hsh(x.s)==h){printf("%3d %s\n",no++,x.a.c_str());break;} }
  if(!lasta.empty()){ printf("    then:"); for(auto&x:o)(void)x; o.clear(); S cur=all_[at]; viol="";succ(cur,o); printf(" "); for(auto&x:o)if(!x.env)printf("[%s] ",x.a.c_str()); printf("\n"); }
  return 1; }
